import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.decoding.fusion import (
    FUSIONS,
    SpanScore,
    length_in_words,
    mean_nll,
    mixture,
    most_confident,
)

SCORES = [SpanScore(0.5, 4), SpanScore(2.0, 3)]


def test_mean_nll_is_the_weighted_mean_of_equation_5():
    assert mean_nll(SCORES, (1, 1), 2) == pytest.approx(1.25)
    assert mean_nll(SCORES, (3, 1), 2) == pytest.approx((3 * 0.5 + 2.0) / 4)


def test_mixture_is_the_log_of_the_mean_probability_per_word():
    expected = -math.log((math.exp(-2.0) + math.exp(-6.0)) / 2) / 2
    assert mixture(SCORES, (1, 1), 2) == pytest.approx(expected)
    expected = -math.log((math.exp(-2.0) + 3 * math.exp(-6.0)) / 4) / 2
    assert mixture(SCORES, (1, 3), 2) == pytest.approx(expected)


def test_mixture_ignores_a_model_of_weight_zero_and_survives_tiny_probabilities():
    assert mixture(SCORES, (0, 1), 1) == pytest.approx(6.0)
    assert mixture([SpanScore(500.0, 10)] * 2, (1, 1), 1) == pytest.approx(5000.0)


def test_most_confident_takes_the_surer_model():
    assert most_confident(SCORES, (1, 1), 2) == 0.5


def test_the_length_counts_words_and_the_end():
    assert length_in_words(" two words", ends=False) == 2
    assert length_in_words(" two words", ends=True) == 3
    assert length_in_words("", ends=True) == 2
    assert length_in_words("\n", ends=False) == 1


@given(st.sampled_from(sorted(FUSIONS)), st.floats(0, 50), st.integers(1, 20))
def test_models_that_agree_are_fused_to_what_they_say(name, nll, tokens):
    score = SpanScore(nll, tokens)
    fused = FUSIONS[name]([score, score], (1.0, 1.0), tokens)
    assert fused == pytest.approx(nll, abs=1e-9)
