"""Traces compared: what was decoded, not how long it took."""

import math
from pathlib import Path
from typing import Any

from adafuse.storage.parquet import read_rows

TOLERANCE = 1e-4
"""A resumed job decodes rows beside other rows, so that sums are rounded elsewhere."""


def decoded(file: Path) -> list[dict[str, Any]]:
    """The rows of a trace without what they cost, which depends on the rows beside and before."""
    costs = {"seconds", "forwards", "evaluated"}
    return [{key: row[key] for key in row.keys() - costs} for row in read_rows(file)]


def assert_same(one: Any, other: Any) -> None:
    """Everything is equal; log-probabilities and margins up to rounding."""
    if isinstance(one, float) and isinstance(other, float):
        assert math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    else:
        assert one == other
