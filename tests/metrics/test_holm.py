"""Holm's adjusted p-values: worked case, closed forms, order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.metrics.paired import holm

P_VALUES = st.lists(st.floats(0, 1), max_size=12)


def test_a_worked_case() -> None:
    # 0.01 * 4, 0.03 * 2, 0.04 raised to 0.06, 0.005 * 4 first; as p.adjust(p, "holm") of R.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_closed_forms() -> None:
    assert holm([]) == []
    assert holm([0.04]) == [0.04]
    assert holm([0.02] * 5) == pytest.approx([0.1] * 5)
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@given(P_VALUES)
def test_adjusting_keeps_the_order_and_only_raises(values: list[float]) -> None:
    adjusted = holm(values)
    assert all(p <= q <= 1 for p, q in zip(values, adjusted, strict=True))
    ranked = sorted(zip(values, adjusted, strict=True))
    assert [q for _, q in ranked] == sorted(adjusted)


@given(P_VALUES.filter(bool))
def test_the_smallest_is_bonferroni_s(values: list[float]) -> None:
    assert min(holm(values)) == min(1.0, len(values) * min(values))


@given(P_VALUES, st.randoms())
def test_the_order_of_the_tests_does_not_matter(values: list[float], random: object) -> None:
    paired = sorted(zip(values, holm(values), strict=True))
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert sorted(zip(shuffled, holm(shuffled), strict=True)) == paired
