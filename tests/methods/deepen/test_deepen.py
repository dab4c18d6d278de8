"""DeePEn through its decode path, against figures of the published processor."""

import logging
import math

import pytest

from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.methods import resolve
from tests.conftest import toy_path
from tests.methods.deepen import example as e
from tests.methods.test_engines_agree import PROMPTS
from tests.support.scripted import ScriptedModel, decode


def model(name, tokens, logits, embeddings):
    """A model that gives the same probabilities everywhere."""
    p = logits.softmax(-1).tolist()
    return ScriptedModel(name, tokens, lambda ids: p, embeddings=embeddings)


def small_pair():
    return [
        model("a", e.TOKENS_A, e.LOGITS_A, e.EMBEDDINGS_A),
        model("b", e.TOKENS_B, e.LOGITS_B, e.EMBEDDINGS_B),
    ]


def first_round(models, **settings):
    """The candidates of the first round by their text."""
    taken = decode("deepen", models, limits={"max_rounds": 1}, **settings).rounds[0]
    assert taken.selected == 0
    return {c.text or "END": c for c in taken.candidates}


def fused(candidates):
    return [math.exp(-candidates[token].fused) for token in e.TOKENS_A]


def test_the_other_model_turns_cat_into_dog():
    candidates = first_round(small_pair())
    assert next(iter(candidates)) == "dog"
    assert fused(candidates) == pytest.approx([0.1703, 0.2057, 0.5165, 0.0784, 0.0290], abs=5.1e-5)


def test_a_small_temperature_factor_keeps_cat():
    candidates = first_round(small_pair(), temperature_factor=5.0)
    assert next(iter(candidates)) == "cat"
    assert fused(candidates) == pytest.approx([0.1258, 0.4506, 0.3501, 0.0537, 0.0199], abs=5.1e-5)


def test_the_trace_tells_what_each_model_alone_says():
    candidates = first_round(small_pair())
    own = {name: [math.exp(-nll) for nll in c.nll] for name, c in candidates.items()}
    assert own["dog"] == pytest.approx([0.2733, 0.7955], abs=5.1e-5)
    assert own["cat"] == pytest.approx([0.3689, 0.0974], abs=5.1e-5)
    assert own["END"] == pytest.approx([0.0150, 0.0033], abs=5.1e-5)
    assert candidates["s"].nll[1] == math.inf  # nothing in b begins with it
    assert [candidates[name].proposers for name in ("dog", "cat")] == [(0, 1), (0,)]


def test_the_main_model_may_be_any():
    assert set(first_round(small_pair(), main=1)) == {"dog", "the", "ing", "cat", "END"}


def test_only_the_likeliest_tokens_take_part():
    assert set(first_round(small_pair(), top=2)) == {"cat", "the"}


def test_the_weights_make_the_target():
    first, even, second = (
        first_round(small_pair(), weights=weights)
        for weights in ((3.0, 0.0), (2.0, 2.0), (0.0, 0.5))
    )
    assert fused(first) == pytest.approx(e.LOGITS_A.softmax(-1).tolist(), abs=1e-6)
    assert fused(even) == pytest.approx(fused(first_round(small_pair())), abs=1e-9)
    assert fused(second)[2] > fused(even)[2]


@pytest.mark.parametrize("settings", [{"learning_rate": 0.0}, {"learning_rate": 1e-6}])
def test_without_a_learning_rate_the_main_model_stands(settings):
    expected = e.LOGITS_A.softmax(-1).tolist()
    assert fused(first_round(small_pair(), **settings)) == pytest.approx(expected, abs=1e-6)


def test_the_main_model_alone_ends_the_text():
    ending = e.LOGITS_A.clone()
    ending[4] = 1.21
    models = [model("a", e.TOKENS_A, ending, e.EMBEDDINGS_A), small_pair()[1]]
    candidates = first_round(models)
    assert next(iter(candidates)) == "END"
    assert fused(candidates) == pytest.approx(ending.softmax(-1).tolist(), abs=1e-6)


def test_what_cannot_run_is_refused_before_decoding(pair):
    with pytest.raises(
        UserError, match="deepen: main is 2, but the models are numbered from 0 to 1"
    ):
        pair.generate(PROMPTS, method="deepen", main=2)
    strange = model("c", ["x", "y", "END"], e.LOGITS_A[:3], [[1.0]] * 3)
    with pytest.raises(UserError, match="'a' and 'c' have 0 tokens in common, and deepen needs 2"):
        resolve("deepen", {}).prepare([small_pair()[0], strange])


def test_the_cap_is_logged_once(caplog):
    with caplog.at_level(logging.INFO, "adafuse"):
        decode("deepen", small_pair(), limits={"max_rounds": 3})
    told = [record.getMessage() for record in caplog.records]
    assert told == ["deepen cannot overturn a lead of the main model above 1.35 nats"]


def alone(ensemble, number):
    """The greedy text of a member."""
    member = Ensemble((ensemble.models[number],), (1.0,))
    return member.generate(PROMPTS, method="single", max_new_tokens=20)


def assert_same_texts(results, expected):
    for one, other in zip(results, expected, strict=True):
        # A decoder drops all of a run of bytes that make no character, the loop only those.
        assert one.text == other.text or "\ufffd" in other.text
        assert one.text.startswith(other.text.split("\ufffd")[0])
        assert one.stop_reason == other.stop_reason
        assert set(one.tokens) == set(other.tokens)


@pytest.mark.parametrize("models", ["pair", "random_pair"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_model_with_itself_writes_its_own_greedy_text(models, number, request):
    ensemble = request.getfixturevalue(models)
    twice = Ensemble((ensemble.models[number],) * 2, (1.0, 1.0))
    results = twice.generate(PROMPTS, method="deepen", max_new_tokens=20)
    assert_same_texts(results, alone(ensemble, number))


@pytest.mark.parametrize("number", [0, 1])
def test_learning_rate_0_is_the_greedy_text_of_the_main_model(pair, number):
    results = pair.generate(
        PROMPTS, method="deepen", main=number, learning_rate=0.0, max_new_tokens=20
    )
    for one, other in zip(results, alone(pair, number), strict=True):
        # The other model may need more tokens for the text, and be the first at the limit.
        assert other.text.startswith(one.text)
        assert one.text == other.text or max(one.tokens) == 20


def test_one_model_is_its_own_greedy_text():
    ensemble = Ensemble.from_pretrained([toy_path("qwen3")], device="cpu")
    results = ensemble.generate(PROMPTS, method="deepen", max_new_tokens=20)
    assert_same_texts(results, alone(ensemble, 0))
