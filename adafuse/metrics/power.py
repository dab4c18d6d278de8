"""What a comparison can show: the difference that it detects with a power of 80 %."""

import math
from typing import NamedTuple

from adafuse.metrics.paired import PairedCounts

_Z_LEVEL = 1.959963984540054
"""Of a two-sided test at 5 %."""
_Z_POWER = 0.8416212335729143
TARGET = 2.0
"""In points: the difference of which comparisons say how many rows it needs."""


class Power(NamedTuple):
    """The smallest difference in points that is detected in 80 of 100 repetitions.

    None if there is none. `rows` are as many as a difference of `TARGET` points needs.
    """

    detectable: float | None
    rows: int


def of_accuracies(counts: PairedCounts) -> Power | None:
    """Return the power of McNemar's exact test, if as many rows differ; None if none do.

    R. J. Connor, Sample size for testing differences in proportions for the paired-sample design,
    Biometrics 43, 1987, with the continuity correction (the 1 below) that stands for the exact
    test: n d - 1 = 1.96 sqrt(n s) + 0.84 sqrt(n (s - d^2)) for a difference d of n rows, a share s
    of which differ. No difference is larger than that share, so that a `TARGET` above it has all
    rows differ in favour of one run.
    """
    n, differing = counts.n, counts.wins + counts.losses
    if not differing:
        return None
    base, square = 1 + _Z_LEVEL * math.sqrt(differing), _Z_POWER**2
    root = base**2 - (1 + square / n) * (base**2 - square * differing)
    share = (base + math.sqrt(max(0.0, root))) / (n + square)
    target = TARGET / 100
    spread = max(differing / n, target)
    noise = _Z_LEVEL * math.sqrt(spread) + _Z_POWER * math.sqrt(spread - target**2)
    rows = math.ceil(((noise + math.sqrt(noise**2 + 4 * target)) / (2 * target)) ** 2)
    return Power(100 * share if share <= differing / n else None, rows)


def of_means(error: float, n: int) -> Power:
    """Return the power of a test whose difference has this standard error, in points, of n rows."""
    detectable = (_Z_LEVEL + _Z_POWER) * error
    return Power(detectable, math.ceil(n * (detectable / TARGET) ** 2))
