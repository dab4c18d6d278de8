"""Corpus BLEU with sacrebleu's 13a tokenizer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adafuse.scoring.intervals import bootstrap

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

Counts = tuple[int, ...]


def corpus_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[float, float, float]:
    """Return BLEU with both ends of its 95 % bootstrap interval, 0 to 100.

    Args:
        hypotheses: one text per segment; an empty one counts against the corpus.
        references: at least one text per segment.
    """
    # sacrebleu takes longer to import than the rest of scoring takes to run.
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize="13a", effective_order=True)
    counts = [
        _counts(metric, text, refs) for text, refs in zip(hypotheses, references, strict=True)
    ]
    low, high = bootstrap(len(counts), lambda chosen: _bleu(counts, chosen))
    return _bleu(counts, range(len(counts))), low, high


def _counts(metric: "BLEU", hypothesis: str, references: Sequence[str]) -> Counts:
    score = metric.sentence_score(hypothesis, list(references))
    return (*score.counts, *score.totals, score.sys_len, score.ref_len)


def _bleu(counts: Sequence[Counts], chosen: Sequence[int]) -> float:
    """Return BLEU of the chosen segments from their n-gram counts, as sacrebleu pools them."""
    from sacrebleu.metrics.bleu import BLEU

    pooled = [sum(column) for column in zip(*(counts[index] for index in chosen), strict=True)]
    orders = (len(pooled) - 2) // 2
    score = BLEU.compute_bleu(
        correct=pooled[:orders],
        total=pooled[orders : 2 * orders],
        sys_len=pooled[-2],
        ref_len=pooled[-1],
        smooth_method="exp",
    )
    return float(score.score)
