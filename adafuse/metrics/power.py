"""What a comparison can show: the difference that it detects with a power of 80 %."""

import math
from statistics import NormalDist
from typing import NamedTuple

from adafuse.metrics.intervals import FEWEST_ROWS, RESAMPLES
from adafuse.metrics.noninferior import OUTSIDE
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


def of_means(error: float, n: int, differing: int) -> Power:
    """Return the power of a test whose difference has this standard error, in points, of n rows.

    On `differing` of them the scores differ. `rows` are never fewer than the bootstrap needs.
    """
    detectable = (_Z_LEVEL + _Z_POWER) * error
    rows = math.ceil(n * (detectable / TARGET) ** 2)
    return Power(detectable, max(rows, _fewest(n, differing)))


def certifying_accuracies(counts: PairedCounts, margin: float, level: float) -> int | None:
    """Return how many rows give a p of non-inferiority of at most `level` in 80 % of repetitions.

    That is of the exact test, if as many rows differ and the true difference is the observed one;
    None if no number of rows is enough. Connor's formula, as above, with the standard error of the
    hypothesis that accuracies differ by the margin, for which as many rows at least must differ.
    """
    border, gain, level = margin / 100, counts.difference, level - OUTSIDE
    if gain <= -border or level <= 0:
        return None
    differing = (counts.wins + counts.losses) / counts.n
    tested = max(differing, border) - border**2
    n = _rows(gain + border, tested, differing - gain**2, level)
    return math.ceil((math.sqrt(n) + math.sqrt(n + 2 / (gain + border))) ** 2 / 4)


def certifying_means(
    gain: float, error: float, n: int, differing: int, margin: float, level: float
) -> int | None:
    """Return the same for a difference in points with this standard error of `n` rows."""
    if gain <= -margin or level < 1 / (RESAMPLES + 1):
        return None
    variance = n * error**2
    rows = math.ceil(_rows(gain + margin, variance, variance, level))
    return max(rows, _fewest(n, differing))


def _fewest(n: int, differing: int) -> int:
    """Return how many rows have enough that differ for the bootstrap, if so many of `n` do."""
    return math.ceil(FEWEST_ROWS * n / differing)


def _rows(distance: float, tested: float, true: float, level: float) -> float:
    """Return the rows for a distance from the hypothesis, by the variances of a row."""
    noise = -NormalDist().inv_cdf(level) * math.sqrt(tested) + _Z_POWER * math.sqrt(true)
    return (noise / distance) ** 2
