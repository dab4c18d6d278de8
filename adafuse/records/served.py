"""Which server decoded a row."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

SAME = 0.25
"""How far, in nats, most log-probabilities may move when a server is asked again: rounding in 16
bits moves them by less, another model by more."""


class Served(NamedTuple):
    """What a server says of itself, and the `likely` ids of `FINGERPRINT`; rows depend on it."""

    engine: str
    version: str
    model: str
    context: int
    likely: tuple[tuple[tuple[int, float], ...], ...] = ()

    def is_same(self, other: "Served") -> bool:
        """Whether it is the same model on the same engine; log-probabilities may be rounded."""
        pairs = zip(self.likely, map(dict, other.likely), strict=False)
        moved = [abs(v - now.get(n, math.inf)) for step, now in pairs for n, v in step]
        return self[:4] == other[:4] and median(moved or [math.inf]) <= SAME


def are_same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether the models of two rows are the same, each a record of `Served` or None if loaded."""
    pairs = [*zip(some, others, strict=False)]
    return len(some) == len(others) and all(
        one is other or (one and other and Served(**one).is_same(Served(**other)))
        for one, other in pairs
    )
