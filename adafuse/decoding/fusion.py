"""F(s): how the NLLs of several models become one score; the smallest wins (eq. 5, 6)."""

import math
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from adafuse.decoding.candidates import Candidate
from adafuse.errors import UserError
from adafuse.options import MethodOptions, WordTokens

FusionRule = Callable[[Candidate, Sequence[float]], float]
"""Takes a scored candidate and the weights w_k of the models."""

PoolFusion = Callable[[Sequence[Candidate], Sequence[float]], list[float]]
"""Takes all candidates of a round, with finite NLLs, and the weights; gives F(s) of each."""

FUSION_RULES: dict[str, FusionRule] = {}
"""What users name as `fusion`."""


def fusion_rule(rule: FusionRule) -> FusionRule:
    """Add a fusion rule under the name of its function, which no other rule may have."""
    if FUSION_RULES.setdefault(rule.__name__, rule) is not rule:
        raise UserError(f"there are two fusion rules {rule.__name__!r}; rename one of them")
    return rule


def per_candidate(rule: FusionRule) -> PoolFusion:
    """Return the rule that fuses every candidate of a pool by itself."""
    return lambda pool, weights: [rule(candidate, weights) for candidate in pool]


@fusion_rule
def mean_nll(candidate: Candidate, weights: Sequence[float]) -> float:
    """Weighted mean, over the models k, of NLL_k(s) (eq. 5): a product of experts."""
    return weighted_mean(candidate.nll, weights)


@fusion_rule
def mixture(candidate: Candidate, weights: Sequence[float]) -> float:
    """Negative log of the weighted mean of p_k(s), per word: a linear opinion pool."""
    terms = [math.log(w) + candidate.logprob(k) for k, w in enumerate(weights) if w > 0]
    largest = max(terms)
    log_sum = largest + math.log(math.fsum(math.exp(term - largest) for term in terms))
    return (math.log(math.fsum(weights)) - log_sum) / candidate.length


@fusion_rule
def most_confident(candidate: Candidate, weights: Sequence[float]) -> float:
    """The smallest NLL_k(s) of any model of weight above 0; otherwise weights are ignored."""
    return min(nll for nll, w in zip(candidate.nll, weights, strict=True) if w > 0)


def mean_perplexity(candidate: Candidate, weights: Sequence[float]) -> float:
    """Weighted arithmetic mean of the perplexities exp(NLL_k(s)) (arXiv 2407.19807)."""
    return weighted_mean(_perplexities(candidate), weights)


def filtered_perplexity(ratio: float) -> FusionRule:
    """Return the mean perplexity without unfaithful scores.

    Where the largest perplexity is more than `ratio` times the smallest, both are dropped with
    their weights; if none is left, only the largest is. Models of weight 0 have no say in it.
    """

    def fuse(candidate: Candidate, weights: Sequence[float]) -> float:
        pairs = zip(_perplexities(candidate), weights, strict=True)
        kept = sorted(pair for pair in pairs if pair[1] > 0)
        if kept[-1][0] > ratio * kept[0][0]:
            kept = kept[1:-1] or kept[:-1]
        return weighted_mean(*zip(*kept, strict=True))

    return fuse


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = math.fsum(w * value for w, value in zip(weights, values, strict=True) if w > 0)
    return total / math.fsum(weights)


def _perplexities(candidate: Candidate) -> list[float]:
    # math.exp overflows above 709; so large a perplexity loses anyway.
    return [math.exp(min(nll, 700.0)) for nll in candidate.nll]


def _registered(name: str) -> str:
    if name not in FUSION_RULES:
        *others, last = map(repr, FUSION_RULES)
        raise ValueError(f"must be {', '.join(others)} or {last}")
    return name


class FusionOptions(MethodOptions):
    """What every method that fuses words shares."""

    fusion: Annotated[
        str,
        AfterValidator(_registered),
        Field(
            description="fusion rule, F(s): the mean of the models' NLLs (the paper's), the NLL of"
            " their mixture, or the lowest of their NLLs",
            json_schema_extra=lambda schema: schema.update(enum=list(FUSION_RULES)),
        ),
    ] = "mean_nll"
    max_word_tokens: WordTokens = 16

    @property
    def rule(self) -> PoolFusion:
        return per_candidate(FUSION_RULES[self.fusion])


def check_weights(weights: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """Return w_k, one per model and all 1 by default; refuse negative ones, or none above 0."""
    values = (1.0,) * count if weights is None else tuple(float(weight) for weight in weights)
    if len(values) != count:
        raise UserError(f"{len(values)} weights for {count} models; give one per model")
    if not all(math.isfinite(value) and value >= 0 for value in values) or not any(values):
        raise UserError(f"weights {list(values)} must be at least 0, one of them above")
    return values
