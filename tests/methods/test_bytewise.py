"""Two small models whose next-byte probabilities were worked out by hand and by enumeration."""

import math

import pytest

from adafuse.ensemble import Ensemble
from tests.conftest import toy_path
from tests.methods.test_engines_agree import PROMPTS
from tests.support.scripted import ScriptedModel, decode

A, B, AB = 0, 1, 2
M1 = {None: (0.2, 0.25, 0.45, 0.1), A: (0.5, 0, 0.3, 0.2), B: (0.3, 0.3, 0.3, 0.1)}
M1[AB] = (0.4, 0.2, 0.25, 0.15)
M2 = {None: (0.55, 0.35, 0.1), A: (0.25, 0.6, 0.15), B: (0.45, 0.35, 0.2)}
TABLE = {
    "": [(0.65, 0.25, 0.1), (0.55, 0.35, 0.1), (0.6, 0.3, 0.1)],
    "a": [(0.2462, 0.6923, 0.0615), (0.25, 0.6, 0.15), (0.2481, 0.6462, 0.1058)],
    "ab": [(0.65, 0.2, 0.15), (0.45, 0.35, 0.2), (0.55, 0.275, 0.175)],
    "aa": [(0.5, 0.375, 0.125), (0.25, 0.6, 0.15), (0.375, 0.4875, 0.1375)],
    "aba": [(0.4923, 0.3846, 0.1231), (0.25, 0.6, 0.15), (0.3712, 0.4923, 0.1365)],
}


def by_last_token(script):
    """A script that reads the last id only."""
    return lambda ids: script[ids[-1] if ids else None]


def members():
    return [
        ScriptedModel("m1", ["a", "b", "ab", "END"], by_last_token(M1), merges=[("a", "b")]),
        ScriptedModel("m2", ["a", "b", "END"], by_last_token(M2)),
    ]


def guide(text):
    """A model that is certain of a text of a and b."""
    return ScriptedModel(
        "guide",
        ["a", "b", "END"],
        lambda ids: [float("ab".find(text[len(ids)]) == k) for k in range(3)],
    )


def probabilities(taken):
    """What each model, and then all together, give a, b and END in a round."""
    by_symbol = {("END" if c.ends else c.text): (*c.nll, c.fused) for c in taken.candidates}
    columns = zip(*(by_symbol[symbol] for symbol in ("a", "b", "END")), strict=True)
    return [[math.exp(-value) for value in column] for column in columns]


def check(found, expected):
    for row, wanted in zip(found, expected, strict=True):
        assert row == pytest.approx(wanted, abs=5.1e-5)


def test_bytes_of_the_greedy_text_have_the_probabilities_worked_out():
    example = decode("bytewise", members(), limits={"max_rounds": 4})
    assert example.text == "abab"
    for size, taken in enumerate(example.rounds):
        check(probabilities(taken), TABLE["abab"[:size]])


def test_bytes_of_any_other_text_have_them_too():
    models = [*members(), guide("aab")]
    example = decode("bytewise", models, weights=(1.0, 1.0, 1e9), limits={"max_rounds": 3})
    assert example.text == "aab"
    one, two, *_ = probabilities(example.rounds[2])
    check([one, two], TABLE["aa"][:2])
    check([[(p + q) / 2 for p, q in zip(one, two, strict=True)]], TABLE["aa"][2:])


def test_a_token_across_the_end_of_the_text_is_not_forgotten():
    """Feeding the token a and reading the token b would make b impossible."""
    assert M1[A][B] == 0
    taken = decode("bytewise", members(), limits={"max_rounds": 2}).rounds[1]
    assert probabilities(taken)[0][1] == pytest.approx(0.6923, abs=5e-5)


def test_weights_shift_the_mean():
    example = decode("bytewise", members(), weights=(3.0, 1.0), limits={"max_rounds": 1})
    assert probabilities(example.rounds[0])[2] == pytest.approx([0.625, 0.275, 0.1], abs=1e-6)


@pytest.mark.parametrize(("mean", "text"), [("arithmetic", "a"), ("geometric", "b")])
def test_the_geometric_mean_lets_any_model_veto_a_byte(mean, text):
    models, limits = [*members(), guide("ba")], {"max_rounds": 1}
    assert decode("bytewise", models, weights=(4, 4, 1), mean=mean, limits=limits).text == text


def test_the_geometric_mean_of_two_models():
    taken = decode("bytewise", members(), mean="geometric", limits={"max_rounds": 1}).rounds[0]
    means = [math.sqrt(one * other) for one, other in zip(*TABLE[""][:2], strict=True)]
    assert probabilities(taken)[2] == pytest.approx(means, abs=1e-6)


def test_a_round_tells_who_proposed_its_bytes():
    candidates = decode("bytewise", members(), limits={"max_rounds": 4}).rounds[3].candidates
    assert [(c.text, c.proposers) for c in candidates] == [("b", (1,)), ("a", (0,)), ("", ())]


def test_end_is_written_when_it_is_likeliest():
    model = ScriptedModel("m", ["a", "END"], lambda ids: [0.9, 0.1] if not ids else [0.4, 0.6])
    example = decode("bytewise", [model])
    assert (example.text, example.reason, len(example.rounds)) == ("a", "eos", 2)


def texts(ensemble):
    return ensemble.generate(PROMPTS, method="bytewise", max_new_tokens=16)


@pytest.mark.parametrize("name", ["mistral", "llama"])
def test_a_model_with_itself_is_the_model_alone(name):
    path = toy_path(name)
    alone = Ensemble.from_pretrained([path], device="cpu")
    twice = Ensemble.from_pretrained([path, path], device="cpu")
    for one, two in zip(texts(alone), texts(twice), strict=True):
        assert (one.text, one.stop_reason) == (two.text, two.stop_reason)
        assert len(one.rounds) == len(two.rounds)


@pytest.mark.parametrize("models", ["pair", "random_pair"])
def test_the_order_of_the_models_changes_nothing_but_ties(models, request):
    ensemble = request.getfixturevalue(models)
    swapped = Ensemble(ensemble.models[::-1], ensemble.weights)
    for one, other in zip(texts(ensemble), texts(swapped), strict=True):
        assert (one.text, one.stop_reason) == (other.text, other.stop_reason)


def test_a_model_of_no_weight_has_no_say(pair):
    alone = texts(Ensemble(pair.models[:1], (1.0,)))
    for one, other in zip(texts(Ensemble(pair.models, (1.0, 0.0))), alone, strict=True):
        # The other model may need more tokens for the text, and be the first at the limit.
        assert other.text.startswith(one.text)
        assert one.text == other.text or max(one.tokens) == 16
