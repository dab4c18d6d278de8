"""Two corpus BLEU scores on the same segments: sacrebleu's paired bootstrap.

The p-values are those of `sacrebleu --paired-bs` to the last digit: same seed, same resamples, same
formula. They are computed here because sacrebleu's `PairedTest` keeps the resampled differences,
which the interval needs, to itself, takes its seed from the environment, and tokenizes every text
again for every pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
class PairedBleu:
    """BLEU of two runs, 0 to 100, their difference with its 95 % interval, and its p-value."""

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
    first: "Counts", second: "Counts", resamples: int = RESAMPLES, seed: int = SEED
) -> PairedBleu:
    """Compare two runs on the same segments, in the same order.

    P. Koehn, Statistical significance tests for machine translation evaluation, 2004, as
    `sacrebleu.significance` has it: p = (c + 1) / (resamples + 1), where c counts the resamples
    whose absolute difference exceeds the mean absolute difference by more than the observed one.
    For large differences this is close to a one-sided p-value. The interval holds the middle 95 %
    of the resampled differences.

    One case differs: two runs with the same counts on every segment get p = 1, where sacrebleu's
    formula gives 1 / (resamples + 1).
    """
    import numpy as np

    value, other = pooled_bleu(first), pooled_bleu(second)
    if np.array_equal(first, second):
        return PairedBleu(value, other, 0.0, 0.0, 0.0, 1.0)
    draws = np.random.default_rng(seed).choice(len(first), size=(resamples, len(first)))
    differences = _resampled(first, draws) - _resampled(second, draws)
    low, high = (float(end) for end in np.quantile(differences, (_LOW, _HIGH)))
    p = _p_value(np.abs(differences), abs(value - other))
    return PairedBleu(value, other, value - other, low, high, p)


def _p_value(sizes: "Floats", observed: float) -> float:
    exceeding = int((sizes - sizes.mean() > observed).sum())
    return (exceeding + 1) / (len(sizes) + 1)


def _resampled(counts: "Counts", draws: "NDArray[np.int64]") -> "Floats":
    import numpy as np

    return np.array([pooled_bleu(counts[chosen]) for chosen in draws])


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
