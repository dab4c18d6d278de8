"""Votes against numbers worked out for the published update; rows are verifiers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.decoding.round import Example
from adafuse.decoding.words import Limits
from adafuse.methods.specfuse import Ballot, SpecFuseOptions, hedge, reward, softmax, staying
from tests.support.candidates import candidate

RAW = [(17, 26, 22), (25, 18, 19), (21, 18, 19)]
# The softmax of logarithms divides by the sum, as the published normalisation does.
ROWS = np.log(RAW)
VOTES = softmax(ROWS)


def ballot(models, **options):
    """Return the ballot of an example of so many models."""
    example = Example((1.0,) * models, Limits(), sequences=[object()] * models)
    return Ballot(example, SpecFuseOptions(**options), np.ones(models), np.zeros(models))


def vote(rule, pool):
    """Let a ballot vote on a round, and count the round."""
    fused, _ = rule(pool, rule.example.weights)
    rule.example.rounds.append(None)
    return [-value for value in fused]


def rounded(values):
    """Values to four decimals."""
    return [round(value, 4) for value in values]


def test_normalised_rows_and_their_plain_sums():
    assert [rounded(row) for row in VOTES] == [
        [0.2615, 0.4, 0.3385],
        [0.4032, 0.2903, 0.3065],
        [0.3621, 0.3103, 0.3276],
    ]
    assert rounded(np.ones(3) @ VOTES) == [1.0268, 1.0007, 0.9725]
    assert [reward(VOTES, model) for model in range(3)] == [1, 0.5, 0.5]


HEDGED = [
    ([0.3661, 0.3169, 0.3169], [0.3383, 0.3368, 0.3249]),
    ([0.3830, 0.3085, 0.3085], [0.3363, 0.3385, 0.3252]),
    ([0.3945, 0.3028, 0.3028], [0.3349, 0.3396, 0.3255]),
]


def test_hedge_turns_the_choice_in_the_second_round():
    weights = np.ones(3) / 3
    for number, expected in enumerate(HEDGED, start=1):
        weights = hedge(weights, VOTES, 0.5, number)
        assert (rounded(weights), rounded(weights @ VOTES)) == expected


RAW_POOL = [
    candidate(*((nll, 1) for nll in column), proposers=[model])
    for model, column in enumerate(-ROWS.T)
]


def test_a_ballot_keeps_the_weights_from_round_to_round():
    hedged = ballot(3, hedge=0.5)
    for _, expected in HEDGED:
        assert rounded(vote(hedged, RAW_POOL)) == expected
    assert rounded(vote(ballot(3), RAW_POOL)) == [1.0268, 1.0007, 0.9725]


def test_models_of_one_draft_share_its_votes():
    shared = [
        candidate((1.0, 2), (2.0, 2), (3.0, 2), proposers=[0, 2]),
        candidate(*[(0.5, 1)] * 3, proposers=[1]),
    ]
    rule = ballot(3, votes="mean_nll", hedge=2.0)
    assert len(vote(rule, shared)) == 2
    assert rule.weights[1] > rule.weights[0] == rule.weights[2]


def test_a_model_whose_draft_is_out_loses_weight():
    rule = ballot(2, votes="mean_nll", hedge=1.0)
    vote(rule, [candidate((5.0, 1), (5.0, 1), proposers=[0])])
    # Of two models the one comparison of each is won by default.
    assert rule.weights == pytest.approx([0.5, 0.5])
    rule = ballot(3, votes="mean_nll", hedge=1.0)
    vote(rule, [candidate(*[(5.0, 1)] * 3, proposers=[number]) for number in (0, 1)])
    assert rule.weights[2] < rule.weights[0] == rule.weights[1]


def test_the_model_with_the_fewest_votes_leaves_first_and_votes_no_more():
    rule, out = ballot(3, exit_temperature=0.02), [set()]
    while len(out[-1]) < 2:
        drafts = [s for s in RAW_POOL if out[-1].isdisjoint(s.proposers)]
        assert math.fsum(vote(rule, drafts)) == pytest.approx(3 - len(out[-1]))
        out.append(set(rule.example.out))
    # The totals of all are 1.0268, 1.0007 and .9725; of the first two alone .9860 and 1.0140.
    assert next(step for step in out if step) == {2}
    assert all(before <= after for before, after in itertools.pairwise(out))


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=6), st.floats(0.01, 100), st.floats(-100, 100)
)
def test_the_best_models_stay_and_alike_ones_all_do(quality, temperature, shift):
    stay = staying(np.array(quality), temperature)
    assert stay
    assert min(quality[k] for k in stay) >= max(
        (value for k, value in enumerate(quality) if k not in stay), default=-math.inf
    )
    assert staying(np.full(len(quality), shift), temperature) == [*range(len(quality))]


def test_nobody_leaves_to_models_without_a_vote():
    """The one model that votes prefers the draft of another one, whose weight is 0."""
    example = Example((1.0, 0.0), Limits(), sequences=[object()] * 2)
    options = SpecFuseOptions(exit_temperature=0.01)
    rule = Ballot(example, options, np.array([1.0, 0.0]), np.zeros(2))
    drafts = [
        candidate((5.0, 1), (1.0, 1), proposers=[0]),
        candidate((1.0, 1), (1.0, 1), proposers=[1]),
    ]
    for _ in range(2):
        first, second = vote(rule, drafts)
        assert second > first > 0 and example.out == set()


def test_of_two_models_one_leaves_where_the_other_is_far_ahead():
    """exp(H(P)) is below 1.5 from P = 0.8597 on: a lead of 1.813 in units of the temperature."""
    assert staying(np.array([0.0, 1.80]), 1.0) == [1, 0]
    assert staying(np.array([0.0, 1.82]), 1.0) == [1]
    assert staying(np.array([0.0, 3.64]), 2.0) == [1]


def test_hedge_of_one_model_changes_nothing():
    assert hedge(np.ones(1), np.array([[0.3]]), 0.5, 1).tolist() == [1.0]


@given(
    st.lists(st.floats(0, 800), min_size=1, max_size=5),
    st.floats(-500, 500),
)
def test_a_softmax_vote_sums_to_one_whatever_the_scale(nlls, shift):
    scores = -np.array([nlls])
    (votes,) = softmax(scores)
    assert math.fsum(votes) == pytest.approx(1)
    assert softmax(scores + shift)[0] == pytest.approx(votes, abs=1e-9)


@given(st.floats(0.01, 1e6), st.integers(2, 5), st.data())
def test_hedge_weights_stay_a_distribution(rate, models, data):
    row = st.lists(st.floats(-50, 0), min_size=models, max_size=models)
    votes = data.draw(st.lists(row, min_size=models, max_size=models))
    weights = hedge(np.ones(models), np.array(votes), rate, 1)
    assert math.fsum(weights) == pytest.approx(1)
    assert all(weight >= 0 for weight in weights)
