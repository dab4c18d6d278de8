"""Paired tests of two runs on the same rows, with the interval of their difference."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adafuse.metrics.intervals import RESAMPLES, Estimate, wilson

SEED = 12345

PerRow = NDArray[Any]
"""What a score is computed from: a number or a vector of counts per row."""


@dataclass(frozen=True, slots=True)
class PairedCounts:
    """Rows that both runs have right, only the first (`wins`), only the second, or neither."""

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


def count_pairs(first: PerRow, second: PerRow) -> PairedCounts:
    """Count the rows of two runs, 1 where one is right and 0 where not, in the same order."""
    neither, losses, wins, both = np.bincount(2 * first + second, minlength=4).tolist()
    return PairedCounts(both, wins, losses, neither)


def mcnemar_exact(wins: int, losses: int) -> float:
    """Return the two-sided p-value of McNemar's exact conditional test.

    Under the null each discordant row is a fair coin: twice the smaller binomial tail, at most 1;
    1 without discordant rows. Q. McNemar, Note on the sampling error of the difference between
    correlated proportions or percentages, 1947; exact form: A. M. Mood, 1950.
    """
    total, fewer = wins + losses, min(wins, losses)
    ways = tail = 1
    for drawn in range(fewer):
        ways = ways * (total - drawn) // (drawn + 1)
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
    n, first, second = counts.n, counts.both + counts.wins, counts.both + counts.losses
    (low_1, high_1), (low_2, high_2) = wilson(first, n), wilson(second, n)
    phi = _phi(counts, first * (n - first) * second * (n - second))
    below = _joined(first / n - low_1, high_2 - second / n, phi)
    above = _joined(high_1 - first / n, second / n - low_2, phi)
    return counts.difference - below, counts.difference + above


def _phi(counts: PairedCounts, margins: int) -> float:
    excess: float = counts.both * counts.neither - counts.wins * counts.losses
    if excess > 0:
        excess = max(0.0, excess - counts.n / 2)
    return excess / math.sqrt(margins) if margins else 0.0


def _joined(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))


@dataclass(frozen=True, slots=True)
class Difference(Estimate):
    """First run minus second, 0 to 100, with its 95 % interval, p-value and discordant rows.

    `resampled` has the differences of the bootstrap's resamples, if it made them.
    """

    p: float = 1.0
    wins: int | None = None
    losses: int | None = None
    resampled: PerRow = field(default_factory=lambda: np.zeros(0), compare=False, repr=False)


def paired_accuracies(first: PerRow, second: PerRow) -> Difference:
    """Compare the accuracies of two runs with McNemar's test and Newcombe's interval."""
    counts = count_pairs(first, second)
    low, high = newcombe(counts)
    p = mcnemar_exact(counts.wins, counts.losses)
    return Difference(100 * counts.difference, 100 * low, 100 * high, p, counts.wins, counts.losses)


def paired_bootstrap(first: PerRow, second: PerRow, score: Callable[[PerRow], float]) -> Difference:
    """Compare two runs by a score of the same rows, in the same order.

    P. Koehn, Statistical significance tests for machine translation evaluation, 2004, with the seed
    and formula of `sacrebleu --paired-bs`, which does not return the resampled differences: p =
    (c + 1) / (resamples + 1), where c counts the resamples whose absolute difference exceeds the
    mean absolute difference by more than the observed one. For large differences this is close to
    a one-sided p-value. The interval holds the middle 95 % of the resampled differences.

    One case differs: two runs with the same counts on every segment get p = 1, where sacrebleu's
    formula gives 1 / (resamples + 1).
    """
    if np.array_equal(first, second):
        return Difference(0.0, 0.0, 0.0, 1.0)
    observed = score(first) - score(second)
    draws = np.random.default_rng(SEED).choice(len(first), size=(RESAMPLES, len(first)))
    differences = np.array([score(first[chosen]) - score(second[chosen]) for chosen in draws])
    low, high = np.quantile(differences, (0.025, 0.975)).tolist()
    p = _p_value(np.abs(differences), abs(observed))
    return Difference(observed, low, high, p, resampled=differences)


def paired_randomization(first: PerRow, second: PerRow, score: Callable[[PerRow], float]) -> float:
    """Return the two-sided p-value of approximate randomization (E. W. Noreen, 1989).

    The runs swap each row or not, at random: p = (c + 1) / (resamples + 1), where c counts the
    resamples whose absolute difference is at least the observed one. It holds its level with any
    number of rows that differ, as sacrebleu's bootstrap does not.
    """
    observed, draw, reached = abs(score(first) - score(second)), np.random.default_rng(SEED), 0
    for _ in range(RESAMPLES):
        swap = draw.random((len(first), *[1] * (first.ndim - 1))) < 0.5
        one, two = np.where(swap, second, first), np.where(swap, first, second)
        reached += abs(score(one) - score(two)) >= observed - 1e-9
    return (reached + 1) / (RESAMPLES + 1)


def _p_value(sizes: NDArray[np.float64], observed: float) -> float:
    exceeding = int((sizes - sizes.mean() > observed).sum())
    return (exceeding + 1) / (len(sizes) + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p-values, in the order of the given ones.

    The k-th smallest of m is multiplied by m - k + 1, made no smaller than the one before it, and
    cut at 1: rejecting those below 0.05 keeps the chance of any false rejection below 5 %,
    whatever the dependence between the tests. S. Holm, A simple sequentially rejective multiple
    test procedure, 1979.
    """
    given = np.array(p_values)
    order = np.argsort(given, kind="stable")
    raised = np.minimum(1, given[order] * np.arange(len(given), 0, -1))
    adjusted = np.empty_like(raised)
    adjusted[order] = np.maximum.accumulate(raised)
    return [float(p) for p in adjusted]
