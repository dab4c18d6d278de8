import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.decoding.candidates import Span
from adafuse.decoding.fusion import (
    FUSION_RULES,
    fusion_rule,
    mean_nll,
    mixture,
    most_confident,
)
from adafuse.errors import UserError
from tests.support.candidates import candidate

SCORES = [(0.5, 4), (2.0, 3)]


def test_mean_nll_is_the_weighted_mean_of_equation_5():
    assert mean_nll(candidate(*SCORES, words=2), (1, 1)) == pytest.approx(1.25)
    assert mean_nll(candidate(*SCORES, words=2), (3, 1)) == pytest.approx((3 * 0.5 + 2.0) / 4)


def test_mixture_is_the_log_of_the_mean_probability_per_word():
    expected = -math.log((math.exp(-2.0) + math.exp(-6.0)) / 2) / 2
    assert mixture(candidate(*SCORES, words=2), (1, 1)) == pytest.approx(expected)
    expected = -math.log((math.exp(-2.0) + 3 * math.exp(-6.0)) / 4) / 2
    assert mixture(candidate(*SCORES, words=2), (1, 3)) == pytest.approx(expected)


def test_mixture_ignores_a_model_of_weight_zero_and_survives_tiny_probabilities():
    assert mixture(candidate(*SCORES, words=1), (0, 1)) == pytest.approx(6.0)
    assert mixture(candidate((500.0, 10), (500.0, 10)), (1, 1)) == pytest.approx(5000.0)


def test_most_confident_takes_the_surer_model_of_those_with_a_weight():
    sure, doubtful = 0.5, 3.0
    assert most_confident(candidate((doubtful, 2), (sure, 4)), (1, 1)) == sure
    assert most_confident(candidate((doubtful, 2), (sure, 4)), (1, 0)) == doubtful


def test_the_length_counts_words_and_the_end():
    assert Span(" two words", ends=False).length == 2
    assert Span(" two words", ends=True).length == 3
    assert Span("", ends=True).length == 2
    assert Span("\n", ends=False).length == 1


@given(st.sampled_from(sorted(FUSION_RULES)), st.floats(0, 50), st.integers(1, 20))
def test_models_that_agree_are_fused_to_what_they_say(name, nll, tokens):
    agreed = candidate((nll, tokens), (nll, tokens), words=tokens)
    fused = FUSION_RULES[name](agreed, (1.0, 1.0))
    assert fused == pytest.approx(nll, abs=1e-9)


def test_two_rules_of_one_name_are_refused():
    def mean_nll(candidate, weights):
        return 0.0

    with pytest.raises(
        UserError, match=r"two fusion rules 'mean_nll' \(of .*\); rename one of them"
    ):
        fusion_rule(mean_nll)


def test_a_rule_of_ones_own_is_an_option_of_every_method_that_fuses_words(pair, monkeypatch):
    monkeypatch.setattr("adafuse.decoding.fusion.FUSION_RULES", dict(FUSION_RULES))

    @fusion_rule
    def worst(candidate, weights):
        return max(candidate.nll)

    for method in ("adafuse", "fixed_length", "beam_scaling"):
        (result,) = pair.generate(["the"], method=method, fusion="worst", max_new_tokens=4)
        for each in result.rounds:
            assert all(c.fused == max(c.nll) for c in each.candidates)
    with pytest.raises(UserError, match=r"unknown fusion rule 'best'; known are: .*, worst, l"):
        pair.generate(["the"], fusion="best")
