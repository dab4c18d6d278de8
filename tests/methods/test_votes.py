"""Votes against numbers worked out for the published update; rows are verifiers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.methods.specfuse import Ballot, hedge, reward, softmax
from tests.support.candidates import candidate

RAW = [(17, 26, 22), (25, 18, 19), (21, 18, 19)]
# The softmax of logarithms divides by the sum, as the published normalisation does.
ROWS = np.log(RAW)
VOTES = softmax(ROWS)


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


def test_a_ballot_keeps_the_weights_from_round_to_round():
    pool = [
        candidate(*((nll, 1) for nll in column), proposers=[model])
        for model, column in enumerate(-ROWS.T)
    ]
    ballot = Ballot("softmax", 0.5, np.ones(3))
    for _, expected in HEDGED:
        assert rounded(-value for value in ballot(pool, (1, 1, 1))) == expected
    plain = Ballot("softmax", None, np.ones(3))
    assert rounded(-value for value in plain(pool, (1, 1, 1))) == [1.0268, 1.0007, 0.9725]


def test_models_of_one_draft_share_its_votes():
    ballot = Ballot("mean_nll", 2.0, np.ones(3))
    shared = [
        candidate((1.0, 2), (2.0, 2), (3.0, 2), proposers=[0, 2]),
        candidate(*[(0.5, 1)] * 3, proposers=[1]),
    ]
    assert len(ballot(shared, (1.0, 1.0, 1.0))) == 2
    assert ballot.weights[1] > ballot.weights[0] == ballot.weights[2]


def test_a_model_whose_draft_is_out_loses_weight():
    ballot = Ballot("mean_nll", 1.0, np.ones(2))
    ballot([candidate((5.0, 1), (5.0, 1), proposers=[0])], (1.0, 1.0))
    # Of two models the one comparison of each is won by default.
    assert ballot.weights == pytest.approx([0.5, 0.5])
    ballot = Ballot("mean_nll", 1.0, np.ones(3))
    two = [candidate(*[(5.0, 1)] * 3, proposers=[number]) for number in (0, 1)]
    ballot(two, (1.0,) * 3)
    assert ballot.weights[2] < ballot.weights[0] == ballot.weights[1]


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
