"""Non-inferiority: whether a run is less than a margin worse than another one on the same rows."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adafuse.metrics.intervals import clopper_pearson, log_factorials
from adafuse.metrics.paired import PairedCounts

LEVEL = 0.05
OUTSIDE = 0.001
"""The chance that the share of wins lies outside of the values that the exact test looks at."""
_STEPS = 65
_REACH = 8.0
"""Standard deviations around the expected counts outside of which nothing is added up."""
_TOLERANCE = 2e-4
"""Of bounds, -1 to 1; the outer end is taken."""


class NonInferiority(NamedTuple):
    """The one-sided p-value of "worse by the margin or more", and how much worse it may be.

    `worst` is the one-sided 95 % bound of the difference, in points.
    """

    p: float
    worst: float


def exact(counts: PairedCounts, margin: float) -> NonInferiority:
    """Return the exact test of two accuracies, from the pairs that they differ on.

    The hypothesis is that the first accuracy is `margin` points or more below the second. The bound
    is the inversion of the test, which is below -margin if and only if p is above 0.05.
    """
    border, high = -margin / 100, counts.difference
    p = tail(counts, border)
    low, high = (border, high) if p <= LEVEL else (-1.0, min(high, border))
    guess = counts.difference - 5 * math.sqrt(counts.wins + counts.losses + 4) / counts.n
    if low < guess < high and tail(counts, guess) <= LEVEL:
        low = guess
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if tail(counts, middle) <= LEVEL else (low, middle)
    return NonInferiority(p, 100 * low)


def resampled(differences: NDArray[np.float64], margin: float) -> NonInferiority:
    """Return the approximate test of two scores, from their differences in bootstrap resamples.

    P is the share of differences at or below -margin, with 1 added to both counts, and the bound is
    their 5 % quantile: the inversion of the percentile interval, B. Efron and R. J. Tibshirani, An
    introduction to the bootstrap, 1993, chapter 13.
    """
    reached = int((differences <= -margin).sum())
    worst = float(np.quantile(differences, LEVEL))
    return NonInferiority((reached + 1) / (len(differences) + 1), worst)


def tail(counts: PairedCounts, difference: float) -> float:
    """Return the exact p-value of "accuracies differ by `difference`, -1 to 1, or less".

    H. Hsueh, J. Liu and J. J. Chen, Unconditional exact tests for equivalence or noninferiority for
    paired binary endpoints, Biometrics 57, 2001: the chance of a score statistic at least as large
    as the observed one, at the border of the hypothesis and at the worst share of wins there. That
    share is sought in its 99.9 % Clopper-Pearson interval, for which 0.001 is added to p: R. L.
    Berger and D. D. Boos, P values maximized over a confidence set for the nuisance parameter,
    JASA 89, 1994. Points inside of the hypothesis have a smaller chance than the one of the border
    with as many wins, since the statistic grows with wins and falls with losses.
    """
    n = counts.n
    low, high = clopper_pearson(counts.wins, n, OUTSIDE)
    low, high = max(low, difference), min(max(high, difference), (1 + difference) / 2)
    if low > high:
        return OUTSIDE
    wins = np.clip(np.linspace(low, high, _STEPS), 1e-12, None)
    losses = np.clip(wins - difference, 1e-12, None)
    rest = np.clip(1 - wins - losses, 1e-12, None)
    first, second = _likely(wins, n)[:, None], _likely(losses, n)[None]
    observed = score_statistic(np.array(counts.wins), np.array(counts.losses), n, difference)
    reached = score_statistic(first, second, n, difference) >= observed - 1e-9
    reached &= first + second <= n
    other, ways = np.where(reached, n - first - second, 0), log_factorials(n)
    orders = np.where(reached, ways[n] - ways[first] - ways[second] - ways[other], -np.inf)
    odds, base = np.log([wins / rest, losses / rest]), n * np.log(rest)

    def largest(middle: int, shares: slice) -> float:
        """Return the largest chance over shares, as factors of that of the middle one."""
        chances = np.exp(orders + first * odds[0, middle] + second * odds[1, middle] + base[middle])
        change, rise = odds[:, shares] - odds[:, [middle]], base[shares] - base[middle]
        centre = np.round(n * np.array([wins[middle], losses[middle]]))
        by_wins = np.exp((first - centre[0]) * change[0])
        by_losses = np.exp((second.T - centre[1]) * change[1] + centre @ change + rise)
        return float(((chances.T @ by_wins) * by_losses).sum(axis=0).max())

    if rest.min() > 0.05:
        return min(1.0, OUTSIDE + largest(_STEPS // 2, slice(None)))
    # Where nearly all rows differ, the factors would overflow.
    return min(1.0, OUTSIDE + max(largest(at, slice(at, at + 1)) for at in range(_STEPS)))


def _likely(shares: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Return the counts that some of the shares make likely."""
    low, high = n * shares.min(), n * shares.max()
    below, above = (_REACH * math.sqrt(each) + _REACH for each in (low, high))
    return np.arange(max(0, math.floor(low - below)), min(n, math.ceil(high + above)) + 1)


def score_statistic(
    wins: NDArray[np.int64], losses: NDArray[np.int64], n: int, difference: float
) -> NDArray[np.float64]:
    """Return how far counts of wins and losses lie above `difference`, in standard errors.

    T. Tango, Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design, Statistics in Medicine 17, 1998: the share of losses in the standard error
    is the most likely one under `difference`.
    """
    half = (2 * n - wins + losses) * difference - wins - losses
    share = (np.sqrt(half**2 + 8 * n * losses * difference * (1 - difference)) - half) / (4 * n)
    variance = n * (2 * share + difference * (1 - difference))
    above = wins - losses - n * difference
    return above / np.sqrt(np.where(variance > 0, variance, 1))
