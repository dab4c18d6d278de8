"""`--model adafuse` inside the harness itself, over tasks of the toy world."""

import functools
import json
import math

import pytest
import yaml
from transformers import LlamaForCausalLM

from adafuse import Ensemble, UserError
from adafuse.lm_eval.arguments import Arguments
from adafuse.lm_eval.requests import read_prompt
from adafuse.methods import METHODS
from adafuse.records.result import Chat
from tests.conftest import toy_path
from tests.lm_eval.tasks import CHOICE, MODELS, QA, task, texts
from tests.support.stand_in import standing
from tests.support.tiny import random_model

harness = pytest.importorskip("lm_eval", reason="needs adafuse[lm-eval]")


from adafuse.lm_eval.model import AdaFuseLM  # noqa: E402
from adafuse.lm_eval.register import register  # noqa: E402

FOUNDER = {"question": "Who founded Niby?", "answer": ["Paila Firmble"]}


def prompts(samples):
    """What the harness asked."""
    return [read_prompt(sample["arguments"][0][0]) for sample in samples]


def test_texts_are_those_of_the_ensemble(evaluate, pair):
    _, samples = evaluate(task(QA))
    own = pair.generate(prompts(samples), max_new_tokens=24, stop=["\n"])
    assert texts(samples) == [result.text for result in own]


def test_worked_examples_are_part_of_the_prompt(evaluate, pair):
    _, samples = evaluate(task(QA), num_fewshot=2)
    asked = prompts(samples)
    assert all(prompt.count("Question:") == 3 for prompt in asked)
    own = pair.generate(asked, max_new_tokens=24, stop=["\n"])
    assert texts(samples) == [result.text for result in own]


@pytest.mark.parametrize("kwargs", [{"until": "a"}, {"until": ["a", "e"]}, {"max_gen_toks": 2}])
def test_until_and_max_gen_toks_are_honoured(evaluate, pair, kwargs):
    _, samples = evaluate(task(QA, generation_kwargs=kwargs))
    length, stop = kwargs.get("max_gen_toks", 256), kwargs.get("until", ())
    own = pair.generate(prompts(samples), max_new_tokens=length, stop=stop)
    assert texts(samples) == [result.text for result in own]


def test_settings_on_the_command_line_win_over_those_of_the_task(evaluate, pair):
    _, samples = evaluate(task(QA), gen_kwargs={"max_gen_toks": 2})
    own = pair.generate(prompts(samples), max_new_tokens=2, stop=["\n"])
    assert texts(samples) == [result.text for result in own]


def test_a_method_and_its_options_are_honoured(evaluate, pair):
    options = {"method": "fixed_length", "words": 2}
    _, samples = evaluate(task(QA), model_args={**options, "weights": "3+1"})
    heavy = Ensemble(pair.models, (3.0, 1.0))
    own = heavy.generate(prompts(samples), max_new_tokens=24, stop=["\n"], **options)
    assert texts(samples) == [result.text for result in own]


@pytest.mark.parametrize("multiturn", [True, False])
def test_every_model_gets_the_history_in_its_own_template(evaluate, pair, multiturn):
    _, samples = evaluate(
        task(QA),
        num_fewshot=1,
        apply_chat_template=True,
        fewshot_as_multiturn=multiturn,
        system_instruction="Be brief.",
    )
    asked = prompts(samples)
    roles = ["system", "user", "assistant", "user"] if multiturn else ["system", "user"]
    assert [[turn.role for turn in chat.turns] for chat in asked] == [roles] * len(asked)
    own = pair.generate(asked, max_new_tokens=24, stop=["\n"])
    assert any(result.text.startswith("\n") for result in own)  # the harness cuts there
    assert texts(samples) == [result.text.partition("\n")[0] for result in own]


def test_a_begun_answer_is_continued_in_a_chat(evaluate):
    _, samples = evaluate(task(QA, gen_prefix="It was"), apply_chat_template=True)
    for chat in prompts(samples):
        assert chat.continues
        assert chat.turns[-1].content == "It was"


def test_the_harness_records_the_templates_of_all_models(pair):
    lm = AdaFuseLM(models=MODELS)
    recorded = json.loads(lm.chat_template(True))
    assert recorded == {model.name: model.tokenizer.chat_template for model in pair.models}
    with pytest.raises(UserError, match="each model uses its own template; give the flag without"):
        lm.chat_template("tool_use")


def test_choices_are_ranked_by_the_mean_log_likelihood_of_all_models(evaluate, pair):
    results, samples = evaluate(task(CHOICE), model_args={"weights": "2+1"})
    weighted = Ensemble(pair.models, (2.0, 1.0))
    for sample in samples:
        pairs = [tuple(arguments) for arguments in sample["arguments"]]
        found = dict(weighted.loglikelihoods(pairs))
        for index, ((value, greedy),) in enumerate(sample["resps"]):
            first, second = found[index].logprobs
            assert value == pytest.approx((2 * first + second) / 3, abs=1e-3)
            assert greedy == all(found[index].greedy)
    assert 0 <= results["results"]["toy_choice"]["acc,none"] <= 1


def test_choices_stand_behind_the_template_of_a_chat(evaluate):
    _, samples = evaluate(task(CHOICE), apply_chat_template=True)
    for sample in samples:
        assert isinstance(read_prompt(sample["arguments"][0][0]), Chat)
        assert all(value < 0 for ((value, _),) in sample["resps"])


@pytest.mark.soak
def test_one_model_alone_says_what_the_harness_itself_says_of_it(evaluate):
    """The harness's own model for Hugging Face folders is the judge."""
    alone = {"models": toy_path("llama"), "method": "single"}
    _, ours = evaluate(task(CHOICE), model_args=alone)
    register()
    theirs = harness.simple_evaluate(
        model="hf",
        model_args={"pretrained": toy_path("llama"), "dtype": "float32"},
        device="cpu",
        tasks=[task(CHOICE)],
        limit=4,
        bootstrap_iters=0,
    )["samples"]["toy_choice"]
    for one, other in zip(ours, theirs, strict=True):
        for ((value, greedy),), ((their_value, their_greedy),) in zip(
            one["resps"], other["resps"], strict=True
        ):
            assert value == pytest.approx(their_value, abs=1e-2)
            assert greedy == their_greedy


def test_the_perplexity_of_whole_texts_is_refused(evaluate):
    rolling = task(QA, output_type="loglikelihood_rolling", metric_list=[{"metric": "perplexity"}])
    with pytest.raises(UserError, match="task 'toy_qa' asks for the perplexity of whole texts"):
        evaluate(rolling)


@pytest.mark.parametrize("kwargs", [{"do_sample": True}, {"temperature": 0.7}, {"num_beams": 2}])
def test_a_task_that_samples_is_refused(evaluate, kwargs):
    with pytest.raises(UserError, match="fused decoding is greedy"):
        evaluate(task(QA, generation_kwargs=kwargs))


def test_results_say_which_models_and_options_they_come_from(evaluate):
    results, _ = evaluate(task(QA), model_args={"tau": 0.5})
    info = results["config"]["adafuse"]
    assert info["models"] == MODELS.split("+")
    assert (info["method"], info["tau"], info["max_words"]) == ("adafuse", 0.5, 3)
    assert info["weights"] == [1.0, 1.0]
    assert [each["dtype"] for each in info["loaded"]] == ["torch.float32"] * 2
    assert info["failed_requests"] == 0
    assert info["versions"]["adafuse"]
    json.dumps(info)


@pytest.mark.parametrize("name", METHODS)
def test_no_option_of_a_method_hides_an_argument(name):
    assert not {*METHODS[name].Options.model_fields} & {*Arguments.model_fields}


def test_requests_that_fail_are_empty_and_too_many_are_an_error(evaluate, tmp_path):
    small = random_model(toy_path("llama"), tmp_path / "small", seed=1, context=64)
    rows = [FOUNDER, {**FOUNDER, "question": "Who? " * 64}]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    long = task(QA, dataset_kwargs={"data_files": {"test": str(tmp_path / "long.jsonl")}})
    long.pop("fewshot_split")
    with pytest.raises(UserError, match=r"1 of 2 generate_until requests failed; .* a context of"):
        evaluate(long, model_args={"models": small})
    results, samples = evaluate(long, model_args={"models": small, "max_error_share": 0.5})
    assert texts(samples)[0]
    assert texts(samples)[1] == ""
    assert results["config"]["adafuse"]["failed_requests"] == 1


@pytest.mark.usefixtures("no_pauses", "manager")
@pytest.mark.parametrize(("kind", "asks"), [("generate_until", {}), ("loglikelihood", " She")])
def test_a_server_that_fails_is_an_error_whatever_share_may_fail(distributions, kind, asks):
    from lm_eval.api.instance import Instance

    with standing(distributions[0]) as one, standing(distributions[1]) as other:
        urls = f"{one.url}+{other.url}"
        lm = AdaFuseLM(models=MODELS, server=urls, max_error_share=1, max_gen_toks=4)
        requests = [Instance(kind, {}, (f"{n}. Who?", asks), 0, ("toy", n, 1)) for n in range(3)]
        left = iter([None])
        other.fault = lambda body: next(left, "broken")
        with pytest.raises(UserError, match=rf"^the server {other.url} failed .* --use_cache"):
            getattr(lm, kind)(requests)
        assert len(lm._ensemble.server_failures) == 1, (
            "a server that is gone is not waited for again"
        )


def test_likelihoods_that_fail_are_impossible(tmp_path, manager):
    from lm_eval.api.instance import Instance

    small = random_model(toy_path("llama"), tmp_path / "small", seed=1, context=64)
    lm = AdaFuseLM(models=small, max_error_share=0.5)
    pairs = [("Who?", " She"), ("Who?", " She" * 65)]
    requests = [
        Instance("loglikelihood", {}, pair, 0, ("toy", number, 1))
        for number, pair in enumerate(pairs)
    ]
    fine, failed = lm.loglikelihood(requests)
    assert fine[0] < 0
    assert failed == (-math.inf, False)
    with pytest.raises(UserError, match=r"1 of 1 loglikelihood requests failed; .* 'toy/1/0'"):
        lm.loglikelihood(requests[1:])


def test_likelihoods_that_are_not_numbers_become_no_accuracy(evaluate, monkeypatch):
    """The harness would take the first choice, right or wrong."""

    def odd(model, *args, **kwargs):
        output = forward(model, *args, **kwargs)
        output.logits.fill_(values[0])
        return output

    forward = LlamaForCausalLM.forward
    monkeypatch.setattr(LlamaForCausalLM, "forward", functools.wraps(forward)(odd))
    values = [math.nan, math.inf, -math.inf]
    while values:
        with pytest.raises(UserError, match=r"loglikelihood requests failed; .* under .*llama"):
            evaluate(task(CHOICE))
        del values[0]


def test_choices_that_all_are_impossible_are_failures(monkeypatch, caplog):
    from lm_eval.api.instance import Instance

    lm = AdaFuseLM(models=MODELS)
    monkeypatch.setattr("adafuse.lm_eval.model.fuse", lambda *_: (-math.inf, False))
    choices = [
        Instance("loglikelihood", {}, ("Who?", text), number, ("toy", 0, 1))
        for number, text in enumerate((" She", " He"))
    ]
    with pytest.raises(UserError, match=r"2 of 2 loglikelihood .* every choice has probability 0"):
        lm.loglikelihood(choices)
    assert lm.loglikelihood(choices[:1]) == [(-math.inf, False)]


def test_a_cache_answers_the_second_time(evaluate, tmp_path):
    first = evaluate(task(QA), use_cache=str(tmp_path / "cache"))[1]
    out = tmp_path / "out.parquet"
    second = evaluate(task(QA), use_cache=str(tmp_path / "cache"), model_args={"trace": str(out)})[
        1
    ]
    assert texts(first) == texts(second)
    assert not out.exists()


def test_the_arguments_of_the_model_win_over_the_flags_of_the_harness():
    lm = AdaFuseLM.create_from_arg_string(
        f"models={MODELS},device=cpu,batch_size=2",
        {"device": "cuda:7", "batch_size": 1, "max_batch_size": None},
    )
    info = lm.get_model_info()["adafuse"]
    assert (info["device"], info["batch_size"]) == ("cpu", 2)


@pytest.mark.parametrize(("cuda", "device"), [(False, "auto"), (True, "cuda:0")])
def test_the_device_that_the_harness_says_by_default_is_not_asked_of_a_cpu(
    monkeypatch, cuda, device
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: cuda)
    monkeypatch.setattr(AdaFuseLM, "__init__", lambda self, **given: self.__dict__.update(given))
    made = AdaFuseLM.create_from_arg_string("models=A+B", {"device": "cuda:0"})
    assert made.__dict__.get("device", "auto") == device


def test_bad_arguments_are_refused_before_a_model_is_loaded(tmp_path):
    with pytest.raises(UserError, match="unknown argument 'tua'"):
        AdaFuseLM(models="nowhere/at-all", tua=1)
    with pytest.raises(UserError, match="is a folder; give the name of a file"):
        AdaFuseLM(models="nowhere/at-all", method="single", trace=str(tmp_path))


def test_the_tasks_of_the_documentation_are_those_of_these_tests():
    for name in (QA, CHOICE):
        written = yaml.safe_load(name.read_text(encoding="utf-8"))
        assert task(name)["task"] == written["task"]


@pytest.mark.parametrize("path", [QA, CHOICE])
def test_start_tokens_in_a_task_s_prompts_change_nothing(evaluate, path):
    plain = task(path)
    doubled = {**plain, "doc_to_text": "<|begin_of_text|><|begin_of_text|>" + plain["doc_to_text"]}
    own = {"models": toy_path("llama"), "method": "single"}
    answers = [
        [sample["resps"] for sample in evaluate(each, model_args=own, limit=3)[1]]
        for each in (plain, doubled)
    ]
    assert answers[0] == answers[1]
