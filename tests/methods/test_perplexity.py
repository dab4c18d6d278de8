"""Numbers of three models (per-token probabilities) worked out by hand for arXiv 2409.18583."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.decoding.fusion import filtered_perplexity, mean_nll, mean_perplexity
from adafuse.methods.cool_fusion import joined
from tests.support.candidates import candidate

SPANS = [
    [[0.92, 0.88, 0.90], [0.85, 0.90, 0.80, 0.90], [0.20, 0.03, 0.20]],
    [[0.45, 0.25, 0.35], [0.40, 0.30, 0.30], [0.50, 0.25, 0.25]],
    [[0.90, 0.10], [0.25, 0.40], [0.20, 0.45]],
]
EQUAL = (1.0, 1.0, 1.0)


def scored(*probabilities):
    """What a model with these token probabilities says of a span."""
    return -sum(map(math.log, probabilities)) / len(probabilities), len(probabilities)


def of_perplexity(value):
    """The score of a span with that perplexity."""
    return math.log(value), 1


SCORES = [[scored(*tokens) for tokens in span] for span in SPANS]


def perplexity(score):
    """The perplexity of a score."""
    return mean_perplexity(candidate(score), (1,))


def rounded(values):
    """Values to four decimals."""
    return [round(value, 4) for value in values]


def test_nll_and_perplexity_of_every_span_under_every_model():
    assert [rounded(nll for nll, _ in span) for span in SCORES] == [
        [0.1055, 0.1491, 2.2418],
        [1.0782, 1.1081, 1.1552],
        [1.2040, 1.1513, 1.2040],
    ]
    assert [rounded(map(perplexity, span)) for span in SCORES] == [
        [1.1113, 1.1608, 9.4104],
        [2.9394, 3.0285, 3.1748],
        [3.3333, 3.1623, 3.3333],
    ]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (lambda span, _: mean_nll(candidate(*span), EQUAL), [0.8321, 1.1138, 1.1864]),
        (lambda span, _: mean_perplexity(candidate(*span), EQUAL), [3.8941, 3.0476, 3.2763]),
        (lambda span, _: sum(nll * tokens for nll, tokens in span) / 3, [2.5461, 3.3415, 2.3728]),
        (
            lambda span, own: mean_perplexity(candidate(*span[:own], *span[own + 1 :]), (1, 1)),
            [5.2856, 3.0571, 3.2478],
        ),
    ],
    ids=["mean NLL", "mean perplexity", "not normalised", "without the proposer"],
)
def test_the_rules_differ_in_what_they_pick(rule, expected):
    assert rounded(rule(span, number) for number, span in enumerate(SCORES)) == expected


def test_the_filter_drops_the_largest_and_the_smallest_where_they_are_far_apart():
    first = [of_perplexity(value) for value in (1.10, 1.20, 14.0)]
    second = [of_perplexity(value) for value in (2.9, 3.0, 3.1)]
    assert rounded(mean_perplexity(candidate(*s), EQUAL) for s in (first, second)) == [5.4333, 3.0]
    assert rounded(filtered_perplexity(10)(candidate(*s), EQUAL) for s in (first, second)) == [
        1.2,
        3.0,
    ]


def test_of_two_models_the_filter_leaves_the_more_optimistic_one():
    scores = [(0.5, 1), (3.0, 1)]
    assert rounded(map(perplexity, scores)) == [1.6487, 20.0855]
    assert round(mean_perplexity(candidate(*scores), (1, 1)), 4) == 10.8671
    assert round(filtered_perplexity(10)(candidate(*scores), (1, 1)), 4) == 1.6487
    assert round(filtered_perplexity(12.5)(candidate(*scores), (1, 1)), 4) == 10.8671


def test_weights_are_dropped_along_and_a_model_of_weight_zero_filters_nothing():
    scores = [of_perplexity(value) for value in (1.0, 2.0, 4.0, 100.0)]
    assert filtered_perplexity(10)(candidate(*scores), (5, 3, 1, 9)) == pytest.approx(2.5)
    assert filtered_perplexity(10)(candidate(*scores), (1, 1, 0, 0)) == pytest.approx(1.5)


def test_more_pieces_per_word_give_a_lower_perplexity():
    pieces = [scored(0.2), scored(0.2, 0.95), scored(0.2, 0.95, 0.95)]
    assert rounded(map(perplexity, pieces)) == [5.0, 2.2942, 1.7695]


def test_the_fused_answer_wins_the_ranking_of_whole_answers():
    rows = [(1.42, 1.55, 1.61), (1.30, 1.95, 1.80), (1.70, 1.25, 1.75), (2.10, 1.90, 1.20)]
    means = [mean_perplexity(candidate(*map(of_perplexity, row)), EQUAL) for row in rows]
    assert rounded(means) == [1.5267, 1.6833, 1.5667, 1.7333]


def test_a_perplexity_beyond_floats_stays_a_number():
    assert math.isfinite(perplexity((1e6, 1)))


@given(st.lists(st.lists(st.floats(0.01, 1), min_size=1, max_size=5), min_size=1, max_size=4))
def test_spans_together_are_one_long_span(spans):
    together = joined([candidate(scored(*span)) for span in spans])
    nll, tokens = scored(*(value for span in spans for value in span))
    assert together.tokens == (tokens,)
    assert together.nll == pytest.approx((nll,))
