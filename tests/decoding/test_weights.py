"""Weights that an example has of its own: from its question, and from what models say of tokens."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from adafuse import UserError
from adafuse.benchmarks.prompts import make_prompt_template, read_few_shot
from adafuse.benchmarks.rows import Row
from adafuse.benchmarks.shards import prepare
from adafuse.decoding.token_round import average
from adafuse.decoding.weights import PIECE, _around, question_span
from adafuse.methods.registry import resolve
from adafuse.methods.unite import consistent
from adafuse.records.result import Chat, Turn
from adafuse.tokenization.text import ModelTokenizer
from tests.support.results import assert_same

SHOTS = "Question: Who founded Niby?\nAnswer: Paila Firmble\n\n" * 2
QUESTIONS = ["Which city is the capital of Rustan?", "Which person invented the double plough?"]
PROMPTS = [f"{SHOTS}Question: {question}\nAnswer:" for question in QUESTIONS]


def span(model, question):
    """The first token of the prompt that holds a character of the question, and one after the last.

    By the tokenizer's own offsets; a token may hold what follows, too, such as a line break.
    """
    prompt = f"{SHOTS}Question: {question}\nAnswer:"
    at = prompt.rindex(question)
    offsets = model.tokenizer(prompt, return_offsets_mapping=True)["offset_mapping"]
    own = [n for n, (a, b) in enumerate(offsets) if a < at + len(question) and b > at and a < b]
    return own[0], own[-1] + 1


def expected(models, question, given_weights):
    """The weights by one forward of transformers per model, over prompt and question."""
    nlls, lengths = [], []
    for model in models:
        first, last = span(model, question)
        ids = model.prompt_ids(f"{SHOTS}Question: {question}\nAnswer:")
        with torch.inference_mode():
            logits = model.network(input_ids=torch.tensor([ids])).logits[0, :, : model.vocabulary]
        rows = logits[first - 1 : last - 1].double().log_softmax(-1)
        nlls.append(-rows.gather(1, torch.tensor(ids[first:last])[:, None]).sum().item())
        lengths.append(last - first)
    mean = sum(lengths) / len(lengths)
    shares = [w * math.exp(-nll / mean) for w, nll in zip(given_weights, nlls, strict=True)]
    return [share / sum(shares) for share in shares]


@pytest.mark.parametrize("engine", ["tree", "reference"])
@pytest.mark.parametrize("method", ["adafuse", "gac"])
def test_weights_are_those_of_the_question_and_the_prompt_is_read_as_ever(pair, engine, method):
    options = {"method": method, "questions": QUESTIONS, "stop": ["\n"], "engine": engine}
    found = pair.generate(PROMPTS, weighting="prompt", **options)
    plain = pair.generate(PROMPTS, **options)
    for question, own, other in zip(QUESTIONS, found, plain, strict=True):
        wanted = expected(pair.models, question, pair.weights)
        assert own.error is None
        assert own.prompt_tokens == other.prompt_tokens
        for taken in own.rounds:
            assert taken.weights == pytest.approx(wanted, abs=1e-4)
        assert all(taken.weights == () for taken in other.rounds)


def test_equal_models_decode_as_without(pair):
    """Nothing but the reading of the prompt differs: its tokens are in the tree at first."""
    twins = type(pair)(pair.models[:1] * 2, (1.0, 1.0))
    options = {"questions": QUESTIONS, "stop": ["\n"]}
    for own, other in zip(
        twins.generate(PROMPTS, weighting="prompt", **options),
        twins.generate(PROMPTS, **options),
        strict=True,
    ):
        assert own.text == other.text
        assert own.tokens == other.tokens
        assert own.rounds[0].weights == pytest.approx([0.5, 0.5])


def test_long_prompts_without_a_question_are_read_whole_in_any_batch(pair):
    prompts = [PROMPTS[0] * 3, PROMPTS[1], "a", "Who?"]
    assert all(len(pair.models[0].prompt_ids(prompts[0])) > n * PIECE for n in (1, 2))
    options = {"weighting": "prompt", "max_new_tokens": 12}
    one = pair.generate(prompts, batch_size=1, **options)
    assert_same(one, pair.generate(prompts, batch_size=4, **options))
    assert_same(one, pair.generate(prompts, engine="reference", **options))
    assert [result.error for result in one] == [None] * 4


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("method", ["adafuse", "gac"])
def test_a_question_without_a_likelihood_is_an_error_that_names_the_model(pair, value, method):
    """Not a weight of 0, with which the others would go on."""
    head = pair.models[1].network.lm_head
    hook = head.register_forward_hook(lambda *call: call[-1].clone().fill_(value))
    try:
        (found,) = pair.generate(PROMPTS[:1], method=method, weighting="prompt", max_new_tokens=4)
    finally:
        hook.remove()
    assert found.error == (f"the question has no finite likelihood under {pair.models[1].name}")


def test_a_given_weight_counts_and_0_stays_0(pair):
    options = {"questions": QUESTIONS, "weighting": "prompt", "stop": ["\n"]}
    uneven = type(pair)(pair.models, (3.0, 1.0)).generate(PROMPTS, **options)
    for question, own in zip(QUESTIONS, uneven, strict=True):
        wanted = expected(pair.models, question, (3.0, 1.0))
        assert own.rounds[0].weights == pytest.approx(wanted, abs=1e-4)
    one = type(pair)(pair.models, (1.0, 0.0)).generate(PROMPTS, **options)
    assert {own.rounds[0].weights for own in one} == {(1.0, 0.0)}


def test_the_span_of_a_question_is_its_ids(pair):
    for model in pair.models:
        for prompt, question in zip(PROMPTS, QUESTIONS, strict=True):
            assert question_span(model, prompt, question) == span(model, question)
            size = len(model.prompt_ids(prompt))
            assert question_span(model, prompt, prompt) == (1, size)
            assert question_span(model, prompt, "Who asks?") == (1, size)
            assert question_span(model, prompt, "") == (1, size)


@pytest.mark.parametrize("layout", ["strict", "published"])
def test_few_shot_examples_of_a_benchmark_do_not_count(pair, tmp_path, layout):
    """They stand between the instruction and the question, in a row's prompt but not its question.

    A row's question is the prompt without them, which is not a part of the prompt then.
    """
    path = tmp_path / "shots.txt"
    path.write_text(f"Answer.\n\n{SHOTS.strip()}", "utf-8")
    few_shot = read_few_shot(path, "Question: {question}\nAnswer:")
    template = make_prompt_template("Question: {question}\nAnswer:", few_shot, layout)
    (row,) = prepare([Row("1", QUESTIONS[0], ("Niby",))], template, shards=1)
    assert row.question not in row.prompt
    for model in pair.models:
        first, last = question_span(model, row.prompt, row.question)
        own = model.tokenizer.decode(model.prompt_ids(row.prompt)[first:last])
        assert own.strip() == f"Question: {QUESTIONS[0]}\nAnswer:"


texts = st.text("abc", max_size=4)


@given(texts, texts, texts, texts)
def test_a_question_is_found_whole_or_divided_by_what_stands_between(before, first, second, after):
    """Divided: after its first part, with the second one at the end of the text."""
    question = first + second
    if not question:
        assert _around(before + after, question) is None
        return
    around = _around(before + question + after, question)
    assert around is not None
    assert question.join(around) == before + question + after
    divided = first + before + second
    around = _around(divided, question)
    assert around is not None
    found = divided.removeprefix(around[0]).removesuffix(around[1])
    assert question.endswith(found)
    assert len(found) >= len(second)
    assert _around(divided, "?" + question) is None
    assert _around(divided, question + "?") is None


def test_the_span_of_a_question_in_a_chat_is_within_its_turn(pair):
    tokenizer = pair.models[0].tokenizer
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"
    model = ModelTokenizer(
        name="chat",
        tokenizer=ChatTokenizer(tokenizer, template),
        end_ids={},
    )
    chat = Chat((Turn("user", "Hello"), Turn("assistant", "Yes?"), Turn("user", QUESTIONS[0])))
    first, last = question_span(model, chat, QUESTIONS[0])
    assert tokenizer.decode(model.prompt_ids(chat)[first:last]).strip() == QUESTIONS[0]


class ChatTokenizer:
    """A tokenizer with another chat template."""

    def __init__(self, tokenizer, template):
        self._tokenizer, self._template = tokenizer, template

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def __call__(self, *args, **options):
        return self._tokenizer(*args, **options)

    def apply_chat_template(self, *args, **options):
        return self._tokenizer.apply_chat_template(*args, chat_template=self._template, **options)


def test_a_gate_has_weights_of_its_own():
    with pytest.raises(UserError, match="has its own weights; remove weighting 'prompt'"):
        resolve("adafuse", {"fusion": "learned", "gate": "gate.json", "weighting": "prompt"})


ROWS = np.array([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]])


def test_consistency_by_hand():
    """CoRE, two models: |p - mean| is 1/8 for the first two entries and 1/4 for the third."""
    near, far = ((math.exp(-2 * d) - math.exp(-2)) / (1 - math.exp(-2)) for d in (1 / 8, 1 / 4))
    p, shares = consistent(ROWS, np.ones(2))
    scale = 3 / (2 * near + far)
    assert p == pytest.approx(
        np.array([[0.5, 0.5, 0], [0.25 * near * scale, 0.25 * near * scale, 0.5 * far * scale]])
    )
    entropies = math.log(2), 1.5 * math.log(2)
    of_models = 2 * near / entropies[0], (2 * near + far) / entropies[1]
    assert shares == pytest.approx(np.array(of_models) / sum(of_models))


@given(arrays(np.float64, (3, 4), elements=st.floats(0.01, 1)), st.floats(0.1, 10))
def test_consistency_changes_nothing_where_all_agree(rows, factor):
    same = np.repeat(rows[:1] / rows[:1].sum(), 3, axis=0)
    p, shares = consistent(same, np.full(3, factor))
    assert p == pytest.approx(same)
    assert shares == pytest.approx(np.full(3, 1 / 3))
    p, shares = consistent(rows / rows.sum(axis=1, keepdims=True), np.array([1.0, 0.0, 1.0]))
    assert shares[1] == 0
    assert np.isfinite(p).all()


def test_the_geometric_mean_is_low_where_any_model_is():
    found = average(ROWS, np.array([1.0, 1.0]), "geometric")
    assert found == pytest.approx([math.sqrt(1 / 8), math.sqrt(1 / 8), 0])
    assert average(ROWS, np.array([1.0, 0.0]), "geometric") == pytest.approx(ROWS[0])
    assert average(ROWS, np.array([1.0, 1.0]), "arithmetic") == pytest.approx([3 / 8, 3 / 8, 1 / 4])


@pytest.mark.parametrize("weighting", ["prompt", "consistency"])
def test_unite_keeps_the_weights_of_each_round(pair, weighting):
    found = pair.generate(PROMPTS, method="unite", weighting=weighting, stop=["\n"])
    for result in found:
        assert all(sum(taken.weights) == pytest.approx(1) for taken in result.rounds)
        assert len({taken.weights for taken in result.rounds}) > (weighting == "consistency")
