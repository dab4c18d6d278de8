from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.methods.llm_blender.method import preferences, survivor

TRANSITIVE = ((0, 1.2, 0.7), (-0.8, 0, 0.5), (-0.4, -0.9, 0))
CYCLIC = ((0, 1.2, -0.3), (-0.8, 0, 0.5), (0.4, -0.9, 0))
LOGITS = st.floats(-10, 10)
MATRICES = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(LOGITS, min_size=n, max_size=n), min_size=n, max_size=n)
)


def scores(matrix):
    return tuple(preferences(matrix).mean(axis=1))


def best_of(matrix, order):
    return survivor(preferences(matrix), order)


def test_transitive_preferences_give_their_order():
    assert preferences(TRANSITIVE).tolist() == [
        pytest.approx(row, abs=5e-5) for row in ([0, 2.0, 1.1], [-2.0, 0, 1.4], [-1.1, -1.4, 0])
    ]
    assert scores(TRANSITIVE) == pytest.approx((1.0333, -0.2, -0.8333), abs=5e-5)
    assert [sum(p > 0 for p in row) * 2 for row in preferences(TRANSITIVE).tolist()] == [4, 2, 0]


def test_a_bubble_pass_finds_the_best_of_transitive_preferences_from_any_start():
    assert {best_of(TRANSITIVE, order) for order in permutations(range(3))} == {0}


def test_cyclic_preferences_have_scores_but_no_sure_survivor():
    assert scores(CYCLIC) == pytest.approx((0.4333, -0.2, -0.2333), abs=5e-5)
    survivors = {order: best_of(CYCLIC, order) for order in permutations(range(3))}
    assert survivors == {
        (0, 1, 2): 2, (0, 2, 1): 1, (1, 0, 2): 2, (1, 2, 0): 0, (2, 0, 1): 1, (2, 1, 0): 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("forth", "back", "score", "best"),
    [(0.4, 0.6, -0.1, 1), (0.4, -0.6, 0.5, 0), (-0.2, -0.5, 0.15, 0)],
)
def test_two_candidates_are_decided_by_both_orders(forth, back, score, best):
    matrix = ((0, forth), (back, 0))
    found = scores(matrix)
    assert found == pytest.approx((score, -score), abs=5e-5)
    assert found.index(max(found)) == best
    assert best_of(matrix, (0, 1)) == best


@given(MATRICES)
def test_scores_cancel_out(matrix):
    assert sum(scores(matrix)) == pytest.approx(0, abs=1e-9)


@given(MATRICES)
def test_the_survivor_lost_to_nobody_behind_it(matrix):
    order = list(range(len(matrix)))
    best = best_of(matrix, order)
    assert all(preferences(matrix)[later, best] <= 0 for later in order[best + 1 :])
