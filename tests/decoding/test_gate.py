import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.decoding.candidates import Span
from adafuse.decoding.fusion import mean_nll, per_candidate
from adafuse.decoding.gate import (
    MODEL_FEATURES,
    SPAN_FEATURES,
    FittedModel,
    LearnedRule,
    read_gate,
)
from adafuse.development.gate_file import FittedGate, Provenance, write_gate
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models.files import model_key
from tests.conftest import toy_path
from tests.support.results import assert_same

PROMPTS = [
    "Question: Who founded the town of Orrin?\nAnswer:",
    "Question: Mira has 7 apples and buys 5 more.\nLet's think step by step\n",
    "Translate English to German.\nQuestion: the big dog sees a red house\nAnswer:",
]
NOTHING = [0.0] * len(MODEL_FEATURES), [0.0] * len(SPAN_FEATURES)
FITTED = Provenance(
    objective="reward",
    method="adafuse",
    options={},
    benchmarks=("rows",),
    rows=1,
    rounds=1,
    penalty=1.0,
    gain={},
    importance={},
    calibration={},
    versions={},
)


def gate(*models, **parts):
    """A gate on toy models, with a bias of 0 each and no coefficients but these."""
    fitted = [FittedModel(name=m, key=tuple(model_key(m, None))) for m in map(toy_path, models)]
    given = {"bias": (0.0,) * len(models), "weights": {}, "span": {}} | parts
    return FittedGate(models=tuple(fitted), fitted=FITTED, **given)


numbers = st.floats(-3, 3)
nlls = st.floats(0, 20)
coefficients = st.tuples(*(st.lists(numbers, min_size=n, max_size=n) for n in (4, 5)))
margins = st.lists(st.floats(0, 1), max_size=3).map(tuple)


@st.composite
def pools(draw, models=2):
    """Candidates that between them have been written by every model."""
    size = draw(st.integers(1, 4))
    found = [
        Span(" word" * draw(st.integers(1, 3)), draw(st.booleans()), nll=draw(each))
        for each in [st.tuples(*[nlls] * models)] * size
    ]
    for k in range(models):
        read = draw(margins)
        for place in draw(st.sets(st.integers(0, size - 1), min_size=1)):
            found[place].margins[k] = read
    return found


@given(pools(), st.tuples(st.floats(0.1, 5), st.floats(0.1, 5)))
def test_without_coefficients_it_is_the_mean_of_equation_5(pool, weights):
    scores, used = LearnedRule([0.0, 0.0], *NOTHING)(pool, weights)
    expected, _ = per_candidate(mean_nll)(pool, weights)
    assert scores == pytest.approx(expected)
    assert used == pytest.approx([weight / sum(weights) for weight in weights])


@given(pools(), st.tuples(numbers, numbers), coefficients)
def test_it_does_not_matter_which_model_comes_first(pool, bias, rest):
    turned = [
        Span(s.text, s.ends, nll=s.nll[::-1], margins={1 - k: m for k, m in s.margins.items()})
        for s in pool
    ]
    scores, used = LearnedRule(bias, *rest)(pool, (1.0, 2.0))
    others, other_used = LearnedRule(bias[::-1], *rest)(turned, (2.0, 1.0))
    assert others == pytest.approx(scores)
    assert other_used[::-1] == pytest.approx(used)


@given(pools(), st.floats(-2, 2))
def test_a_model_without_weight_has_no_say(pool, bias):
    rest = [0.5] * 4, [0.25, -0.5, 1.0, 0.0, 0.0]
    one = LearnedRule([0.0, bias], *rest)(pool, (1.0, 0.0))
    changed = [Span(s.text, s.ends, nll=(s.nll[0], 9.0), margins=s.margins) for s in pool]
    assert LearnedRule([0.0, bias], *rest)(changed, (1.0, 0.0)) == one
    assert one[1] == [1.0, 0.0]


def test_the_weights_and_the_score_by_hand():
    """Two spans, " a" of model 0 and " b c" of model 1, which ends."""
    pool = [
        Span(" a", nll=(0.5, 3.0), margins={0: (0.9, 0.4)}),
        Span(" b c", ends=True, nll=(2.0, 12.0), margins={1: (0.2, math.nan)}),
    ]
    theta, span = [1.0, 2.0, -0.5, 0.25], [1.0, -0.1, 0.3, 2.0, -1.0]
    scores, used = LearnedRule([0.1, 0.0], theta, span)(pool, (1.0, 1.0))
    logits = [
        0.1 + 0.9 + 2 * 0.4 - 0.5 * 0.5 + 0.25 * 2.0,
        0.0 + 0.2 + 2 * 0.0 - 0.5 * 10.0 + 0.25 * 3.0,  # an NLL counts as 10 at most
    ]
    w = [math.exp(z) / sum(map(math.exp, logits)) for z in logits]
    assert used == pytest.approx(w)
    assert scores == pytest.approx(
        [
            w[0] * 0.5 + w[1] * 3.0 + 0.5 - 0.1 * 1 + 2.0 * 0.9 - 0.4,
            w[0] * 2.0 + w[1] * 12.0 + 2.0 - 0.1 * 3 + 0.3 + 2.0 * 0.2 - 0.0,
        ]
    )


def test_what_is_read_is_what_was_written(tmp_path):
    written = gate("mistral", "llama", bias=(0.5, -0.5), weights={"margin": 2.0}, span={"ends": 1})
    write_gate(tmp_path / "gate.json", written)
    assert read_gate(str(tmp_path / "gate.json"), FittedGate) == written


def test_a_gate_knows_its_models_in_any_order():
    one = gate("mistral", "llama", bias=(0.5, -0.5))
    assert one.rule([toy_path("llama"), toy_path("mistral")], "g").bias == [-0.5, 0.5]
    for others in (["mistral", "qwen3"], ["mistral"], ["mistral", "llama", "qwen3"]):
        with pytest.raises(UserError, match=r"'g' was fitted on .*mistral and .*llama, not on"):
            one.rule(list(map(toy_path, others)), "g")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('"margin"', '"margn"'), "unknown feature 'margn'.*did you mean 'margin'"),
        (("2.0", "NaN"), "margin is nan"),
        (("0.0", "NaN"), "bias.0 must be a finite number"),
        (("0.0,\n", ""), "bias has 1 numbers, but there are 2 models"),
        (("adafuse-gate-1", "adafuse-gate-9"), "format must be 'adafuse-gate-1'"),
        (("{", ""), "Invalid JSON"),
    ],
)
def test_a_file_that_is_no_gate_is_refused_in_a_sentence(change, says, tmp_path):
    path = tmp_path / "gate.json"
    write_gate(path, gate("mistral", "llama", weights={"margin": 2.0}))
    path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(UserError, match=f"(?s)gate .*{says}.*adafuse fit") as refused:
        read_gate(str(path))
    assert "\n" not in str(refused.value)


def test_a_missing_gate_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"gate '.*none\.json' cannot be read"):
        read_gate(str(tmp_path / "none.json"))


@pytest.mark.parametrize("method", ["adafuse", "fixed_length", "beam_scaling"])
def test_decoding_with_a_gate(pair, tmp_path, method):
    """One without coefficients decodes what `mean_nll` does, any other the same on both engines."""

    def decode(**options):
        return pair.generate(PROMPTS[:2], method=method, max_new_tokens=10, **options)

    path = tmp_path / "gate.json"
    write_gate(path, gate("mistral", "llama"))
    assert_same(decode(fusion="learned", gate=str(path)), decode())
    parts = {"weights": {"margin": 3.0, "own_nll": -1.0}, "span": {"words": -0.5, "lowest_nll": 1}}
    write_gate(path, gate("mistral", "llama", bias=(1.0, -1.0), **parts))
    learned = decode(fusion="learned", gate=str(path))
    assert_same(learned, decode(fusion="learned", gate=str(path), engine="reference", batch_size=1))
    for taken in (taken for result in learned for taken in result.rounds):
        assert sum(taken.weights) == pytest.approx(1)
    write_gate(path, gate("mistral", "llama", bias=(30.0, -30.0)))
    for taken in (t for result in decode(fusion="learned", gate=str(path)) for t in result.rounds):
        best = min(taken.candidates, key=lambda candidate: candidate.nll[0])
        assert taken.candidates[taken.selected] == best


def test_words_are_written_with_the_weights_of_a_gate(pair, tmp_path):
    def decode(weights=None, **options):
        weighted = Ensemble(pair.models, weights)
        return weighted.generate(PROMPTS, max_new_tokens=16, disagreement="bytes", **options)

    path = tmp_path / "gate.json"
    for bias, weights in (((0.0, 0.0), (1.0, 1.0)), ((60.0, -60.0), (1.0, 0.0))):
        write_gate(path, gate("mistral", "llama", bias=bias))
        learned = decode(fusion="learned", gate=str(path))
        assert [r.text for r in learned] == [r.text for r in decode(weights)]
        for taken in (taken for result in learned for taken in result.rounds if taken.joint):
            share = weights[0] / sum(weights)
            assert taken.weights == pytest.approx([share, 1 - share])


def test_the_options_say_when_a_gate_is_missing_or_of_no_use(pair):
    with pytest.raises(UserError, match="fusion learned needs a gate"):
        pair.generate(["a"], fusion="learned")
    with pytest.raises(UserError, match=r"gate 'x\.json' needs fusion learned, not mixture"):
        pair.generate(["a"], fusion="mixture", gate="x.json")
