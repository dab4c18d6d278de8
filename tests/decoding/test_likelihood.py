"""`Ensemble.loglikelihoods` beside what transformers computes."""

import math
from functools import partial

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from adafuse import Ensemble, UserError
from adafuse.records.result import Chat, Turn
from tests.conftest import toy_path
from tests.support.tiny import random_llama, random_model

PROMPT = "Question: Who founded Niby?\nAnswer:"
TEXTS = (" Paila Firmble", " Paila Lirck", " Paila", " no one, really")


def direct(model, prompt, text):
    """log p(text | prompt) and whether it is greedy, from one forward over prompt and text."""
    before = model.tokenizer(prompt)["input_ids"]
    ids = model.tokenizer(prompt + text)["input_ids"]
    assert ids[: len(before)] == before, "the tokens of the prompt are those of the whole"
    with torch.inference_mode():
        logits = model.network(input_ids=torch.tensor([ids])).logits[0, :, : model.vocabulary]
    rows = logits[len(before) - 1 : -1].float().log_softmax(-1)
    own = torch.tensor(ids[len(before) :])
    logprob = rows.gather(1, own[:, None]).double().sum().item()
    return logprob, len(own), bool((rows.argmax(-1) == own).all())


def asked(ensemble, pairs, **settings):
    """All likelihoods in order."""
    found = dict(ensemble.loglikelihoods(pairs, **settings))
    return [found[index] for index in range(len(pairs))]


@pytest.mark.parametrize("engine", ["tree", "reference"])
def test_every_model_says_what_transformers_computes(pair, engine):
    pairs = [(PROMPT, text) for text in TEXTS]
    for (prompt, text), found in zip(pairs, asked(pair, pairs, engine=engine), strict=True):
        for number, model in enumerate(pair.models):
            logprob, tokens, greedy = direct(model, prompt, text)
            assert found.logprobs[number] == pytest.approx(logprob, abs=1e-3)
            assert found.tokens[number] == tokens
            assert found.greedy[number] == greedy
        assert found.error is None


def test_the_text_that_a_model_writes_is_greedy(pair):
    results = pair.generate([PROMPT], max_new_tokens=24, stop=["\n"])
    (found,) = asked(pair, [(PROMPT, results[0].text)])
    assert any(found.greedy)
    assert max(found.logprobs) > -1


@pytest.mark.parametrize("order", [TEXTS, TEXTS[::-1], (*TEXTS, *TEXTS)])
def test_texts_that_begin_alike_do_not_disturb_one_another(random_pair, order):
    together = asked(random_pair, [(PROMPT, text) for text in order], batch_size=1)
    for text, found in zip(order, together, strict=True):
        (alone,) = asked(random_pair, [(PROMPT, text)])
        assert found.logprobs == pytest.approx(alone.logprobs, abs=1e-3)
        assert found.greedy == alone.greedy


def test_an_answer_to_a_chat_stands_behind_the_template_of_each_model(pair):
    chat = Chat((Turn("user", "Who founded Niby?"),))
    (found,) = asked(pair, [(chat, "Paila")])
    for number, model in enumerate(pair.models):
        ids = [*model.prompt_ids(chat), *model.encode_span("Paila")]
        with torch.inference_mode():
            logits = model.network(input_ids=torch.tensor([ids])).logits[0, :, : model.vocabulary]
        rows = logits.float().log_softmax(-1)
        places = range(len(ids) - found.tokens[number], len(ids))
        logprob = math.fsum(rows[place - 1, ids[place]].item() for place in places)
        assert found.logprobs[number] == pytest.approx(logprob, abs=1e-3)


def test_an_empty_prompt_and_an_empty_text_have_likelihoods(quartet):
    empty_prompt, empty_text = asked(quartet, [("", " Paila"), (PROMPT, "")])
    assert all(math.isfinite(value) and value < 0 for value in empty_prompt.logprobs)
    assert empty_text.logprobs == (0, 0, 0, 0)
    assert empty_text.tokens == (0, 0, 0, 0)


def test_a_text_that_does_not_fit_is_impossible_and_says_why_and_the_others_are_read(pair):
    context = max(model.context for model in pair.models)
    fits, long = asked(pair, [(PROMPT, " Paila"), (PROMPT, " Paila" * context)])
    assert fits.error is None
    assert long.logprobs == (-math.inf, -math.inf)
    assert not any(long.greedy)
    assert "after it are longer than the context of" in long.error


def test_a_text_of_which_a_tokenizer_keeps_nothing_is_impossible_not_sure(pair):
    letters = {"a": 0, "b": 1, "\n": 2, "</s>": 3}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(BPE(letters, [])), eos_token="</s>"
    )
    ensemble = Ensemble([pair.models[0], (random_llama(4, seed=0), tokenizer)])
    lost, kept, empty = asked(ensemble, [("a", "漢字"), ("a", "漢b"), ("a", "")])
    assert lost.logprobs == (-math.inf, -math.inf) and not any(lost.greedy)
    assert lost.error.startswith("'漢字' has no token in the tokenizer of ")
    assert kept.error is None and empty.logprobs == (0, 0)


@pytest.fixture
def logits(pair):
    """Change the second model's logits in a test."""
    hooks = []

    def change(of):
        head = pair.models[1].network.lm_head
        hooks.append(head.register_forward_hook(lambda *call: of(call[-1].clone())))

    yield change
    for hook in hooks:
        hook.remove()


def set_all(value):
    return lambda logits: logits.fill_(value)


def set_first(value):
    return lambda logits: logits.index_fill_(-1, torch.tensor([5]), value)


@pytest.mark.parametrize("engine", ["tree", "reference"])
@pytest.mark.parametrize(
    "odd", [set_all(math.nan), set_first(math.nan), set_first(math.inf), set_all(-math.inf)]
)
def test_a_likelihood_that_is_not_a_number_is_an_error_that_names_the_model(
    pair, logits, odd, engine
):
    logits(odd)
    for found in asked(pair, [(PROMPT, " Paila"), ("", " Paila"), (PROMPT, "?")], engine=engine):
        assert found.logprobs == (-math.inf, -math.inf)
        assert not any(found.greedy)
        assert "that is not a number under" in found.error
        assert pair.models[1].name in found.error and pair.models[0].name not in found.error


@pytest.mark.parametrize("engine", ["tree", "reference"])
def test_a_text_that_one_model_rules_out_is_impossible_without_an_error(pair, logits, engine):
    token = pair.models[1].encode_span(" Paila")[0]
    logits(lambda row: row.index_fill_(-1, torch.tensor([token]), -math.inf))
    out, other = asked(pair, [(PROMPT, " Paila"), (PROMPT, " no")], engine=engine)
    assert out.error is None and other.error is None
    assert math.isfinite(out.logprobs[0]) and out.logprobs[1] == -math.inf
    assert all(map(math.isfinite, other.logprobs))


def as_the_harness(model, prompt, text):
    """log p(text | prompt) by lm-evaluation-harness's rules for models of Hugging Face."""
    tokenizer = model.tokenizer
    own = tokenizer.encode(text, add_special_tokens=False)
    first = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    before = tokenizer.encode(prompt) if prompt else [first]
    after = tokenizer.encode(prompt + text)[len(before) :] if prompt else own
    ids = (before + after)[-(model.context + 1) :]
    with torch.inference_mode():
        logits = model.network(input_ids=torch.tensor([ids[:-1]])).logits[0, :, : model.vocabulary]
    rows = logits[-len(after) :].float().log_softmax(-1)
    own = torch.tensor(ids[-len(after) :])
    return rows.gather(1, own[:, None]).sum().item(), bool((rows.argmax(-1) == own).all())


CONTEXT = 40


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Models of four tokenizers with a context of 40 tokens."""
    folder = tmp_path_factory.mktemp("short")
    names = ("mistral", "llama", "qwen3", "internlm3")
    return Ensemble.from_pretrained(
        [
            random_model(toy_path(name), folder / name, seed=seed, context=CONTEXT)
            for seed, name in enumerate(names)
        ],
        device="cpu",
    )


@pytest.mark.parametrize("text", [" yes", "yes", " no one knows"])
def test_an_empty_context_is_the_start_token_as_in_the_harness(short, text):
    (found,) = asked(short, [("", text)])
    for number, model in enumerate(short.models):
        logprob, greedy = as_the_harness(model, "", text)
        assert found.logprobs[number] == pytest.approx(logprob, abs=1e-3)
        assert found.greedy[number] == greedy


@pytest.mark.parametrize("engine", ["tree", "reference"])
def test_prompts_of_about_a_context_are_cut_on_the_left_as_in_the_harness(short, engine, caplog):
    texts = (" two", " two three", " two three four five", " two three six")
    sizes = range(CONTEXT - 6, CONTEXT + 4)
    prompts = [
        prompt
        for prompt in ("Question:" + " one" * n for n in range(CONTEXT))
        if any(len(model.prompt_ids(prompt)) in sizes for model in short.models)
    ]
    pairs = [(prompt, text) for prompt in prompts for text in texts]
    for (prompt, text), found in zip(pairs, asked(short, pairs, engine=engine), strict=True):
        assert found.error is None
        for number, model in enumerate(short.models):
            logprob, greedy = as_the_harness(model, prompt, text)
            assert found.logprobs[number] == pytest.approx(logprob, abs=1e-3)
            assert found.greedy[number] == greedy
    for model in short.models:
        assert f"fit into the context of {model.name}, {CONTEXT} tokens" in caplog.text


def test_rows_at_a_time_make_no_difference(pair):
    pairs = [(f"{PROMPT} {number}", text) for number in range(3) for text in TEXTS]
    one = asked(pair, pairs, batch_size=1)
    for alone, batched in zip(one, asked(pair, pairs, batch_size="auto"), strict=True):
        assert batched.logprobs == pytest.approx(alone.logprobs, abs=1e-3)


def test_an_impossible_setting_is_refused(pair):
    with pytest.raises(UserError, match="loglikelihood: batch_size must be a whole number"):
        pair.loglikelihoods([(PROMPT, " Paila")], batch_size=-3)


def test_memory_is_planned_for_the_ids_of_the_longest_text(pair, monkeypatch):
    planned = []
    monkeypatch.setattr(
        "adafuse.decoding.run.needs", lambda model, engine, longest: planned.append(longest) or []
    )
    text = "漢" * 60
    ids = max(len(model.encode_span(text)) for model in pair.models)
    assert ids > 2 * len(text)
    pair.loglikelihoods([(PROMPT, " " + "a" * 100), (PROMPT, text)], batch_size="auto")
    prompts = [len(model.prompt_ids(PROMPT)) for model in pair.models]
    assert planned == [count + ids for count in prompts]


def test_a_text_that_a_tokenizer_refuses_fails_alone(pair, monkeypatch):
    def refusing(encode, span):
        if span == " never":
            raise ValueError("the tokenizer merges it")
        return encode(span)

    for model in pair.models:
        refuse = partial(refusing, model.encode_span)
        monkeypatch.setitem(model.__dict__, "encode_span", refuse)
    fine, refused = asked(pair, [(PROMPT, " Paila"), (f"{PROMPT} ", " never")])
    assert fine.error is None
    assert "merges it" in refused.error
