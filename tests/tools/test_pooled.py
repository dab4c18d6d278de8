"""Differences between two settings, averaged over cells."""

import numpy as np
import pytest

from adafuse.metrics.registry import metric_named
from tools.pooled import pooled

ACCURACY = metric_named("exact_match")


def cells(first: list[list[int]], second: list[list[int]], copies: int) -> dict:
    rows = [np.tile(np.array(one, dtype=np.int64), (1, copies)) for one in (first, second)]
    return {"quiz": (ACCURACY, *rows)}


def test_the_average_is_that_of_all_cells() -> None:
    first, second = [[1, 1, 1, 0], [1, 0, 1, 0]], [[1, 0, 1, 0], [0, 0, 0, 0]]
    difference, low, high, p = pooled(cells(first, second, copies=25))
    assert difference == pytest.approx(100 * (0.25 + 0.5) / 2)
    assert low < difference < high and low > 0 and p < 0.01


def test_settings_that_answer_alike_do_not_differ() -> None:
    rows = [[1, 0, 1, 0], [0, 1, 1, 0]]
    assert pooled(cells(rows, rows, copies=10)) == (0.0, 0.0, 0.0, 1.0)


def test_cells_of_the_same_rows_are_not_more_rows() -> None:
    """Six copies of an ensemble say as much as one of them."""
    first, second = [[1, 1, 0, 1, 0, 0]], [[1, 0, 0, 1, 1, 0]]
    once = pooled(cells(first, second, copies=10))
    assert pooled(cells(first * 6, second * 6, copies=10)) == pytest.approx(once)
