"""Two accuracies on the same rows: McNemar's exact test and the interval of their difference."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adafuse.scoring.intervals import wilson


@dataclass(frozen=True, slots=True)
class PairedCounts:
    """Rows by what became of them: right by both, by the first only, by the second only, by none.

    The discordant rows are `wins` of the first run and its `losses`.
    """

    both: int
    wins: int
    losses: int
    neither: int

    @property
    def n(self) -> int:
        """All rows."""
        return self.both + self.wins + self.losses + self.neither

    @property
    def difference(self) -> float:
        """Accuracy of the first run minus that of the second, -1 to 1."""
        return (self.wins - self.losses) / self.n


def count_pairs(first: Sequence[bool], second: Sequence[bool]) -> PairedCounts:
    """Count the rows of two runs; both in the same order."""
    pairs = list(zip(first, second, strict=True))
    return PairedCounts(
        both=pairs.count((True, True)),
        wins=pairs.count((True, False)),
        losses=pairs.count((False, True)),
        neither=pairs.count((False, False)),
    )


def mcnemar_exact(wins: int, losses: int) -> float:
    """Return the two-sided p-value of McNemar's exact conditional test.

    Under the null each discordant row is a fair coin: twice the smaller binomial tail, at most 1;
    1 without discordant rows. Q. McNemar, Note on the sampling error of the difference between
    correlated proportions or percentages, 1947; exact form: A. M. Mood, 1950.
    """
    total, fewer = wins + losses, min(wins, losses)
    ways = tail = 1
    for taken in range(fewer):
        ways = ways * (total - taken) // (taken + 1)
        tail += ways
    # Whole numbers up to the last division, so that no number of rows can underflow.
    return min(1.0, 2 * tail / (1 << total))


def newcombe(counts: PairedCounts) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two paired proportions, within [-1, 1].

    R. G. Newcombe, Improved confidence intervals for the difference between binomial proportions
    based on paired data, Statistics in Medicine 17, 1998, method 10: the Wilson intervals of both
    proportions, joined with the correlation phi of the pairs, its numerator corrected for
    continuity where positive.
    """
    n, phi = counts.n, _phi(counts)
    first, second = counts.both + counts.wins, counts.both + counts.losses
    (low_1, high_1), (low_2, high_2) = wilson(first, n), wilson(second, n)
    below = _joined(first / n - low_1, high_2 - second / n, phi)
    above = _joined(high_1 - first / n, second / n - low_2, phi)
    return counts.difference - below, counts.difference + above


def _joined(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))


def _phi(counts: PairedCounts) -> float:
    margins = (
        (counts.both + counts.wins)
        * (counts.losses + counts.neither)
        * (counts.both + counts.losses)
        * (counts.wins + counts.neither)
    )
    if not margins:
        return 0.0
    excess: float = counts.both * counts.neither - counts.wins * counts.losses
    if excess > 0:
        excess = max(0.0, excess - counts.n / 2)
    return excess / math.sqrt(margins)
