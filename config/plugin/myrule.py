"""The fusion rule `myrule`: the mean NLL, plus a bonus for each further word."""

from collections.abc import Sequence

from adafuse.decoding.candidates import Span
from adafuse.decoding.fusion import fusion_rule, weighted_mean

BONUS = 0.05


@fusion_rule
def myrule(candidate: Span, weights: Sequence[float]) -> float:
    """Return F(s); the candidate with the smallest one is committed."""
    return weighted_mean(candidate.nll, weights) - BONUS * (candidate.length - 1)
