import inspect
import math
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from adafuse import Chat, Ensemble, Turn, UserError
from adafuse.decoding.fusion import check_weights
from adafuse.methods import METHODS
from adafuse.models.language_model import LanguageModel
from adafuse.models.placement import Place
from adafuse.models.spec import ModelSpec
from adafuse.records.result import Answer
from tests.conftest import toy_path
from tests.support.tiny import random_llama, random_model

ROOT = Path(__file__).parents[1]
PROMPTS = ["Question: Who?\nAnswer:", "Question: Where?\nAnswer:"]


def test_results_come_in_the_order_of_the_prompts(pair):
    prompts = [PROMPTS[0], "a " * 50, *PROMPTS]
    together = pair.generate(prompts, max_new_tokens=8, batch_size=2)
    alone = [pair.generate([prompt], max_new_tokens=8)[0] for prompt in prompts]
    assert [result.text for result in together] == [result.text for result in alone]


def test_the_text_is_the_concatenation_of_what_was_committed(pair):
    for result in pair.generate(PROMPTS, max_new_tokens=30, branching=3):
        committed = "".join(taken.candidates[taken.selected].text for taken in result.rounds)
        assert result.text == committed


def test_rounds_and_tokens_are_limits(pair):
    result = pair.generate(PROMPTS[:1], max_new_tokens=500, max_rounds=2, stop=[])[0]
    assert len(result.rounds) <= 2
    result = pair.generate(["the the"], max_new_tokens=1)[0]
    assert max(result.tokens) >= 1 or result.stop_reason == "eos"
    assert len(result.rounds) == 1


def test_a_prompt_longer_than_a_context_fails_alone(tmp_path):
    paths = [
        toy_path("mistral"),
        random_model(toy_path("llama"), tmp_path / "small", seed=0, context=40),
    ]
    ensemble = Ensemble.from_pretrained(paths, device="cpu")
    long, short = ensemble.generate(["word " * 60, "word"], max_new_tokens=4)
    assert long.stop_reason == "error"
    assert "has a context of 40; shorten the prompt" in long.error
    assert "ValueError" in long.traceback
    assert long.rounds == ()
    assert len(long.tokens) == 2
    assert short.stop_reason != "error"


def test_a_full_context_ends_the_text_and_keeps_it(tmp_path):
    path = random_model(toy_path("llama"), tmp_path / "small", seed=0, context=40)
    ensemble = Ensemble.from_pretrained([path], device="cpu")
    for engine in ("tree", "reference"):
        result = ensemble.generate(["word"], max_new_tokens=500, engine=engine)[0]
        assert result.stop_reason == "length"
        assert result.text
        assert result.prompt_tokens[0] + result.tokens[0] <= 40


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Two models of which the second one's logits are not numbers."""
    folder = tmp_path_factory.mktemp("broken")
    paths = [
        random_model(toy_path(name), folder / name, seed=seed)
        for seed, name in enumerate(("mistral", "llama"))
    ]
    ensemble = Ensemble.from_pretrained(paths, device="cpu")
    with torch.no_grad():
        ensemble.models[1].network.lm_head.weight.fill_(float("nan"))
    return ensemble


@pytest.mark.parametrize(
    "method",
    sorted(set(METHODS) - {"single", "self_consistency", "llm_blender", "rerank"}),
)
def test_a_model_without_probabilities_ends_the_example_whatever_the_method(broken, method):
    for result in broken.generate(PROMPTS, method=method, max_new_tokens=8):
        assert result.stop_reason == "error"
        assert broken.models[1].name in result.error
        assert "\n" not in result.error


def test_numbers_that_are_not_finite_end_the_example_and_name_the_model(broken):
    ensemble, path = broken, broken.models[1].name
    for engine in ("tree", "reference"):
        results = ensemble.generate(PROMPTS, max_new_tokens=8, engine=engine)
        for result in results:
            assert result.stop_reason == "error"
            assert result.error == f"no candidate has a finite NLL under {path}"
            assert "ExampleError" in result.traceback
            assert result.rounds[-1].selected is None
            assert math.isinf(result.rounds[-1].candidates[0].fused)


@pytest.mark.parametrize("batch_size", [2, "auto"])
def test_an_error_of_a_tokenizer_ends_its_example_alone(pair, monkeypatch, batch_size):
    whole = LanguageModel.prompt_ids

    def failing(model, prompt):
        if prompt == PROMPTS[1]:
            raise KeyError("no such token")
        return whole(model, prompt)

    monkeypatch.setattr(LanguageModel, "prompt_ids", failing)
    one, other = pair.generate(PROMPTS, max_new_tokens=4, batch_size=batch_size)
    assert one.error is None and one.text
    assert (other.stop_reason, other.error) == ("error", "'no such token'")
    assert "KeyError" in other.traceback and "failing" in other.traceback


def test_weights_are_checked():
    assert check_weights(None, 3) == (1.0, 1.0, 1.0)
    assert check_weights([2, 0], 2) == (2.0, 0.0)
    for weights in ([1.0], [1.0, -1.0], [0.0, 0.0], [1.0, math.nan], [1e308, 1.0]):
        with pytest.raises(UserError, match=r"weights"):
            check_weights(weights, 2)
    for weights in (2, ["a", 1], {2, 1}, {0: 1, 1: 2}, frozenset([1, 2]), "12"):
        with pytest.raises(UserError, match="; give a list of numbers, one per model"):
            check_weights(weights, 2)
    assert check_weights((weight for weight in (2, 1)), 2) == (2.0, 1.0)


@pytest.mark.parametrize("kind", [set, frozenset, dict.fromkeys])
def test_what_has_no_order_is_no_list_of_models_or_prompts(pair, kind):
    paths = kind([toy_path("mistral"), toy_path("llama")])
    with pytest.raises(UserError, match="; give a list of folders or hub ids"):
        Ensemble.from_pretrained(paths)
    with pytest.raises(UserError, match="; give a list of models"):
        Ensemble(kind(pair.models))
    with pytest.raises(UserError, match="; give a list of texts"):
        pair.generate(kind(PROMPTS))


def test_one_prompt_is_not_taken_for_a_list_of_prompts(pair):
    for prompt in ("Question:", b"Question:", Chat((Turn("user", "Question:"),))):
        with pytest.raises(UserError, match="give a list of texts"):
            pair.generate(prompt)


@pytest.mark.parametrize(
    ("prompts", "sentence"),
    [
        (None, "prompts is a NoneType; give a list of texts"),
        ({"role": "user", "content": "hi"}, "prompts is a dict; give a list of texts"),
        (pd.DataFrame({"prompt": PROMPTS}), "prompts is a DataFrame; give a list of texts, such"),
        (["fine", "half \ud83d"], r"prompts\[1\] holds half of a surrogate pair"),
    ],
)
def test_what_are_no_prompts_is_one_sentence(pair, prompts, sentence):
    with pytest.raises(UserError, match=sentence):
        pair.generate(prompts)


@pytest.mark.parametrize("asked", [["one text"], ["ab"], [("prompt", None)], [("a", "b", "c")]])
def test_what_are_no_continuations_is_one_sentence(pair, asked):
    with pytest.raises(UserError, match=r"is not a pair \(prompt, text\); give a prompt and the"):
        pair.loglikelihoods(asked)


@pytest.mark.parametrize("asked", [("prompt", "half \ud83d"), ("half \ud83d", "text")])
def test_half_a_character_in_a_continuation_is_refused_as_in_a_prompt(pair, asked):
    with pytest.raises(UserError, match=r"^the \w+ of a pair holds half of a surrogate pair"):
        pair.loglikelihoods([asked])


@pytest.mark.parametrize("asked", [None, 3, "ab", {"a": "b"}, {("a", "b")}])
def test_what_is_no_list_of_continuations_is_one_sentence(pair, asked):
    with pytest.raises(UserError, match=r"pairs is .*; give a list of pairs \(prompt, text\)"):
        pair.loglikelihoods(asked)


@pytest.mark.parametrize(
    ("models", "sentence"), [(None, "models is None; give a list of"), ([], "no model was given")]
)
def test_what_are_no_models_is_one_sentence(models, sentence):
    for make in (Ensemble, Ensemble.from_pretrained):
        with pytest.raises(UserError, match=sentence):
            make(models)


def test_prompts_may_come_from_a_generator_and_chats_as_messages(pair):
    messages = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    chats = [Chat((Turn("user", prompt),)) for prompt in PROMPTS]
    given = pair.generate((each for each in messages), max_new_tokens=4)
    assert [r.text for r in given] == [r.text for r in pair.generate(chats, max_new_tokens=4)]
    assert "".join(pair.stream_text(messages[0], max_new_tokens=4)) == given[0].text
    with pytest.raises(UserError, match=r"prompts\[1\] is None; give a text, a Chat or a list"):
        pair.generate([PROMPTS[0], None])


def test_models_may_be_one_path_and_devices_what_torch_calls_them():
    (model,) = Ensemble.from_pretrained(
        Path(toy_path("llama")), device=torch.device("cpu"), dtype=torch.bfloat16
    ).models
    assert (model.device.type, model.network.dtype) == ("cpu", torch.bfloat16)
    paths = (toy_path(name) for name in ("mistral", "llama"))
    assert len(Ensemble.from_pretrained(paths, device="cpu").models) == 2
    for one in (toy_path("llama"), ModelSpec(path=toy_path("llama"))):
        assert Ensemble.from_pretrained(one).models[0].name == model.name


def test_models_that_are_loaded_already_decode_as_loaded_ones(pair):
    paths = [toy_path("mistral"), toy_path("llama")]
    loaded = [
        (AutoModelForCausalLM.from_pretrained(p), AutoTokenizer.from_pretrained(p)) for p in paths
    ]
    given = Ensemble(loaded)
    settings = {"max_new_tokens": 8}
    texts = [result.text for result in given.generate(PROMPTS, **settings)]
    assert texts == [result.text for result in pair.generate(PROMPTS, **settings)]
    assert repr(given) == "<Ensemble of mistral + llama>"
    with pytest.raises(UserError, match="str cannot be a model of an ensemble; give a list of"):
        Ensemble(["llama"])
    with pytest.raises(UserError, match="1 weights for 2 models"):
        Ensemble(loaded, [1.0])


def test_a_network_that_is_trained_between_calls_decodes_without_dropout():
    network = random_llama(1288, seed=0, attention_dropout=0.5)
    given = Ensemble([(network, AutoTokenizer.from_pretrained(toy_path("llama")))])
    pairs = [(PROMPTS[0], " Mount")]
    texts, (likelihood,) = given.generate(PROMPTS, max_new_tokens=8), given.loglikelihoods(pairs)
    network.train()
    assert [*map(str, given.generate(PROMPTS, max_new_tokens=8))] == [*map(str, texts)]
    network.train()
    assert [*given.loglikelihoods(pairs)] == [likelihood]


@pytest.mark.parametrize(
    ("factory", "model", "kind"),
    [
        (AutoModel, "llama", "LlamaModel"),
        (AutoModelForSequenceClassification, "llama", "LlamaForSequenceClassification"),
        (AutoModelForSeq2SeqLM, "gen_fuser", "T5ForConditionalGeneration"),
    ],
)
def test_a_network_that_is_no_causal_language_model_is_refused(factory, model, kind):
    network = factory.from_pretrained(toy_path(model))
    told = f"/{model}' is a {kind}, not a causal language model; load one with AutoModelForCausalLM"
    with pytest.raises(UserError, match=told):
        Ensemble([(network, AutoTokenizer.from_pretrained(toy_path(model)))])


def test_a_closed_ensemble_holds_no_weights_and_says_so():
    with Ensemble.from_pretrained(toy_path("llama"), device="cpu") as ensemble:
        network = weakref.ref(ensemble.models[0].network)
        ensemble.generate(["a"], max_new_tokens=1)
    assert network() is None
    assert repr(ensemble) == "<Ensemble of no models, closed>"
    for use in (
        lambda: ensemble.generate(["a"]),
        lambda: ensemble.stream_text("a"),
        lambda: ensemble.loglikelihoods([("a", "b")]),
        lambda: ensemble.at,
    ):
        with pytest.raises(UserError, match="this ensemble is closed; load its models again"):
            use()


def test_a_bar_is_shown_if_it_is_asked_for(pair, capsys):
    pair.generate(PROMPTS, max_new_tokens=1)
    assert capsys.readouterr().err == ""
    pair.generate(PROMPTS, max_new_tokens=1, progress=True)
    assert "2/2 [" in capsys.readouterr().err


def test_signatures_say_every_setting_and_its_type():
    for method in (Ensemble.generate, Ensemble.stream, Ensemble.stream_text):
        hints = inspect.signature(method).parameters
        assert {"method", "max_new_tokens", "stop", "engine"} <= hints.keys()
        annotations = [str(each.annotation) for name, each in hints.items() if name != "self"]
        assert "Any" not in " ".join(annotations)


@pytest.mark.soak
def test_a_script_of_a_user_is_typed_strictly(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ROOT / ".mypy_cache"]
    done = subprocess.run(
        [*command, str(script)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


SCRIPT = """
import torch

import adafuse
from adafuse import Chat, Ensemble, Result, Results, Turn, UserError

def least(candidate: adafuse.Candidate, weights: object) -> float:
    return max(candidate.nll)

with Ensemble.from_pretrained(["a", "b"], device=torch.device("cpu"), weights=[1, 2]) as ensemble:
    results: Results = ensemble.generate(["x", [{"role": "user", "content": "y"}]], tau=0.5)
    first: Result = results[0]
    print(first.text.upper(), first.rounds[0].candidates[0].nll)
    for index, result in ensemble.stream([Chat((Turn("user", "x"),))], stop=["."]):
        print(index + 1, result.seconds / 2)
    text: str = "".join(ensemble.stream_text("x", method="unite"))
    try:
        results.to_parquet("x.parquet")
    except UserError as error:
        print(error)
"""


def highest(candidate, weights):
    """A fusion rule of a notebook."""
    return max(candidate.nll)


@pytest.mark.parametrize("fused", [math.nan, math.inf, "a", None])
def test_a_function_that_returns_no_number_is_told_so(pair, fused):
    (result,) = pair.generate(PROMPTS[:1], max_new_tokens=4, fusion=lambda *_: fused)
    assert result.stop_reason == "error"
    assert result.error == f"fusion rule '<lambda>' returned {fused!r}; return a finite number"


def test_a_function_that_fails_or_changes_the_weights_is_told_with_its_name(pair):
    def scales(candidate, weights):
        weights[0] /= 2
        return candidate.nll[0]

    for fusion, says in ((scales, "TypeError: 'tuple' object"), (lambda span: 0.0, "TypeError: ")):
        (result,) = pair.generate(PROMPTS[:1], max_new_tokens=4, fusion=fusion)
        assert result.error.startswith(f"fusion rule {fusion.__name__!r}: {says}")


def test_what_ends_the_program_of_who_decodes_is_no_error_of_an_example(pair):
    with pytest.raises(SystemExit):
        pair.generate(PROMPTS[:1], max_new_tokens=4, fusion=lambda *_: sys.exit(0))


def test_a_function_fuses(pair):
    for engine in ("tree", "reference"):
        for result in pair.generate(PROMPTS, max_new_tokens=6, fusion=highest, engine=engine):
            for taken in result.rounds:
                for candidate in taken.candidates:
                    assert candidate.fused == max(candidate.nll)


def test_an_unknown_setting_is_refused_before_decoding(pair):
    with pytest.raises(UserError, match="temperature is not a setting; decoding is greedy"):
        pair.generate(PROMPTS, temperature=1.0)
    with pytest.raises(UserError, match="max_tokens is not a setting; give max_new_tokens"):
        pair.generate(PROMPTS, max_tokens=8)
    with pytest.raises(UserError, match=r"weights is not a setting; give it to Ensemble\.from_p"):
        pair.generate(PROMPTS, weights=[2, 1])
    with pytest.raises(UserError, match=r"method adafuse: unknown option .taux'; .* mean .tau.\?"):
        pair.generate(PROMPTS, taux=0.5)
    with pytest.raises(UserError, match="method single needs exactly 1 model, not 2"):
        pair.generate(PROMPTS, method="single")
    with pytest.raises(UserError, match="batch_size"):
        pair.generate(PROMPTS, batch_size=0)


def test_chat_formatting_changes_what_the_models_read():
    plain = Ensemble.from_pretrained([toy_path("qwen3")], device="cpu")
    chat = Ensemble.from_pretrained([toy_path("qwen3")], device="cpu", chat=True)
    one, other = (e.generate(PROMPTS[:1], max_new_tokens=4)[0] for e in (plain, chat))
    assert other.prompt_tokens[0] > one.prompt_tokens[0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gives_the_texts_of_the_cpu(pair):
    paths = [toy_path("mistral"), toy_path("llama")]
    cuda = Ensemble.from_pretrained(paths, device="cuda:0", dtype="float32")
    one = pair.generate(PROMPTS, max_new_tokens=30)
    other = cuda.generate(PROMPTS, max_new_tokens=30)
    assert [result.text for result in one] == [result.text for result in other]


def test_answers_and_tasks_belong_to_the_prompts(pair):
    one = Answer(" yes", "eos", 2.0)
    for given, sentence in (
        ({"answers": [[one, one]]}, "1 lists of answers for 2 prompts; give one each"),
        ({"answers": [[one, one], [one]]}, "1 answers of 2 models; give one per model"),
        ({"answers": [["a", "b"]] * 2}, "'a' is not an answer; give Answer"),
        (
            {"answers": [one, one]},
            r"answers\[0\] is Answer\(.*; give a list with an Answer",
        ),
        ({"answers": [None, None]}, r"answers\[0\] is None; give a list with an Answer per model"),
        ({"answers": 3}, "answers is 3; give a list with the answers to each prompt"),
        ({"questions": ["a", "b", "c"]}, "3 questions for 2 prompts; give one each"),
        ({"questions": []}, "0 questions for 2 prompts; give one each"),
        ({"questions": {"a", "b"}}, "; give a list with a text per prompt"),
        ({"questions": 3}, "questions is 3; give a list with a text per prompt"),
        ({"questions": "ab"}, "questions is 'ab'; give a list with a text per prompt"),
        ({"questions": ["a", 5]}, "give a list with a text per prompt"),
    ):
        with pytest.raises(UserError, match=sentence):
            pair.generate(PROMPTS, method="rerank", **given)
    ranked = pair.generate(PROMPTS, method="rerank", answers=[[one, one]] * 2)
    assert [(r.text, r.seconds > 4) for r in ranked] == [(" yes", True)] * 2
    both = np.array([[one, one]] * 2, dtype=object)
    for given in (both, [*both], (iter(own) for own in both)):
        results = pair.generate(PROMPTS, method="rerank", answers=given, questions=iter("ab"))
        assert [result.text for result in results] == [" yes"] * 2
    with pytest.raises(UserError, match="method 'adafuse' does not read answers; leave them out"):
        pair.generate(PROMPTS, answers=[[one, one]] * 2)


def test_a_method_that_needs_no_model_runs_without_any():
    place = Place.of(ModelSpec(path="none", device="cpu"))
    answers = [[Answer(" yes", "eos"), Answer(" no", "stop")]]
    options = {"ranker": toy_path("pair_ranker"), "rank_only": True}
    ensemble = Ensemble((), (weight for weight in (1.0, 1.0)), place)
    (result,) = ensemble.generate(PROMPTS[:1], method="llm_blender", answers=answers, **options)
    assert result.text in (" yes", " no")
    assert result.tokens == result.forwards == (0, 0)


def test_a_chat_of_one_turn_is_what_chat_formatting_makes_of_a_prompt(pair):
    paths = [model.name for model in pair.models]
    chatting = Ensemble.from_pretrained(paths, device="cpu", chat=True)
    chats = [Chat((Turn("user", prompt),)) for prompt in PROMPTS]
    one, other = (e.generate(p, max_new_tokens=8) for e, p in ((pair, chats), (chatting, PROMPTS)))
    assert [result.text for result in one] == [result.text for result in other]
    assert [result.prompt_tokens for result in one] == [result.prompt_tokens for result in other]


def test_what_reads_finished_answers_is_told_what_the_user_said_last(pair):
    turns = (Turn("user", "Who?"), Turn("assistant", "She."), Turn("user", "Where?"))
    options = {"ranker": toy_path("pair_ranker"), "rank_only": True, "max_new_tokens": 4}
    (result,) = pair.generate([Chat(turns)], method="llm_blender", **options)
    assert result.error is None


def test_a_chat_needs_a_template_of_every_model(tmp_path):
    path = random_model(toy_path("llama"), tmp_path / "model", seed=1)
    (tmp_path / "model/chat_template.jinja").unlink()
    ensemble = Ensemble.from_pretrained([path], device="cpu")
    with pytest.raises(UserError, match="has no chat template; run it without chat formatting"):
        ensemble.generate([Chat((Turn("user", "Who?"),))])
