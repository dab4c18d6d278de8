"""Paired tests of two runs on the same rows, with the interval of their difference.

Accuracies: McNemar's exact test and Newcombe's interval. BLEU: the paired bootstrap, with the
p-values of `sacrebleu --paired-bs` to the last digit: same seed, same resamples, same formula. They
are computed here because sacrebleu's `PairedTest` does not return the resampled differences, which
the interval needs, takes its seed from the environment, and tokenizes every text for every pair.
Several tests: Holm's correction.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adafuse.metrics.intervals import wilson

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]
    Floats = NDArray[np.float64]

SEED = 12345
RESAMPLES = 1000
_LOW, _HIGH = 0.025, 0.975
_NOTHING = (0,) * 10  # four n-gram orders, matched and all, and two lengths


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


@dataclass(frozen=True, slots=True)
class PairedScores:
    """Scores of two runs, 0 to 100, their difference with its 95 % interval, and its p-value."""

    value: float
    other: float
    difference: float
    low: float
    high: float
    p: float


def bleu_counts(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: str,
    *,
    drop_empty: bool = False,
) -> "Counts":
    """Return what corpus BLEU is made of: per segment the matched and all n-grams and both lengths.

    Args:
        hypotheses: one text per segment.
        references: at least one text per segment.
        tokenize: sacrebleu's name of a tokenizer, "13a" or "flores101".
        drop_empty: leave segments with an empty hypothesis or reference out of the corpus, as the
            protocol `published` does; their counts are zero, so that rows stay paired.
    """
    import numpy as np
    from sacrebleu.metrics.bleu import BLEU

    # effective_order does not enter the counts; without it sacrebleu warns about single sentences.
    metric = BLEU(tokenize=tokenize, effective_order=True)
    rows: list[tuple[int, ...]] = []
    for text, texts in zip(hypotheses, references, strict=True):
        if drop_empty and not (text.strip() and any(each.strip() for each in texts)):
            rows.append(_NOTHING)
            continue
        score = metric.sentence_score(text, list(texts))
        rows.append((*score.counts, *score.totals, score.sys_len, score.ref_len))
    return np.array(rows, dtype=np.int64)


def pooled_bleu(counts: "Counts") -> float:
    """Return corpus BLEU, 0 to 100, of the segments in `counts`."""
    return _bleu(counts.sum(axis=0).tolist())


def paired_bootstrap(
    first: "NDArray[Any]",
    second: "NDArray[Any]",
    resamples: int = RESAMPLES,
    seed: int = SEED,
    score: Callable[["NDArray[Any]"], float] = pooled_bleu,
) -> PairedScores:
    """Compare two runs by a score of the same rows, in the same order.

    P. Koehn, Statistical significance tests for machine translation evaluation, 2004, as
    `sacrebleu.significance` has it: p = (c + 1) / (resamples + 1), where c counts the resamples
    whose absolute difference exceeds the mean absolute difference by more than the observed one.
    For large differences this is close to a one-sided p-value. The interval holds the middle 95 %
    of the resampled differences.

    One case differs: two runs with the same counts on every segment get p = 1, where sacrebleu's
    formula gives 1 / (resamples + 1).
    """
    import numpy as np

    value, other = score(first), score(second)
    if np.array_equal(first, second):
        return PairedScores(value, other, 0.0, 0.0, 0.0, 1.0)
    draws = np.random.default_rng(seed).choice(len(first), size=(resamples, len(first)))
    sums = (np.array([score(rows[chosen]) for chosen in draws]) for rows in (first, second))
    differences = next(sums) - next(sums)
    low, high = (float(end) for end in np.quantile(differences, (_LOW, _HIGH)))
    p = _p_value(np.abs(differences), abs(value - other))
    return PairedScores(value, other, value - other, low, high, p)


def _p_value(sizes: "Floats", observed: float) -> float:
    exceeding = int((sizes - sizes.mean() > observed).sum())
    return (exceeding + 1) / (len(sizes) + 1)


def _bleu(pooled: Sequence[int]) -> float:
    from sacrebleu.metrics.bleu import BLEU

    orders = (len(pooled) - 2) // 2
    score: Any = BLEU.compute_bleu(
        correct=list(pooled[:orders]),
        total=list(pooled[orders : 2 * orders]),
        sys_len=pooled[-2],
        ref_len=pooled[-1],
        smooth_method="exp",
    )
    return float(score.score)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p-values, in the order of the given ones.

    The k-th smallest of m is multiplied by m - k + 1, made no smaller than the one before it, and
    cut at 1: rejecting those below 0.05 keeps the chance of any false rejection below 5 %,
    whatever the dependence between the tests. S. Holm, A simple sequentially rejective multiple
    test procedure, 1979.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, floor = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = floor
    return adjusted
