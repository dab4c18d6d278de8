"""Perplexity exp(NLL_k(s)) as the score of a candidate: its mean, and a mean without outliers."""

import math
from collections.abc import Sequence

from adafuse.methods.fusion import FusionFunction, SpanScore

_LARGEST_EXPONENT = 700.0
"""exp of more than 709 is no float; so large a perplexity loses anyway."""


def perplexity(score: SpanScore) -> float:
    """exp of the mean negative log-probability per token."""
    return math.exp(min(score.nll, _LARGEST_EXPONENT))


def mean_perplexity(scores: Sequence[SpanScore], weights: Sequence[float], words: int) -> float:
    """Weighted arithmetic mean of the perplexities (arXiv 2407.19807)."""
    return _mean([(perplexity(score), w) for score, w in zip(scores, weights, strict=True)])


def filtered_perplexity(ratio: float) -> FusionFunction:
    """Return the mean perplexity without unfaithful scores.

    Where the largest perplexity is more than `ratio` times the smallest, both are dropped with
    their weights; if none is left, only the largest is. Models of weight 0 have no say in it.
    """

    def fuse(scores: Sequence[SpanScore], weights: Sequence[float], words: int) -> float:
        pairs = zip(scores, weights, strict=True)
        known = sorted((perplexity(score), weight) for score, weight in pairs if weight > 0)
        if known[-1][0] > ratio * known[0][0]:
            known = known[1:-1] or known[:-1]
        return _mean(known)

    return fuse


def _mean(weighted: Sequence[tuple[float, float]]) -> float:
    total = math.fsum(value * weight for value, weight in weighted)
    return total / math.fsum(weight for _, weight in weighted)
