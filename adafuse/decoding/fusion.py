"""F(s): how the NLLs of several models become one score; the smallest wins (eq. 5, 6)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adafuse.errors import UserError


@dataclass(frozen=True, slots=True)
class SpanScore:
    """What one model says of a candidate: NLL_k(s) in nats per token over `tokens` = T ids."""

    nll: float
    tokens: int

    @property
    def logprob(self) -> float:
        """log p_k(s), the log-probability of the whole candidate."""
        return -self.tokens * self.nll


def joined(scores: Sequence[SpanScore]) -> SpanScore:
    """What a model says of consecutive spans together."""
    tokens = sum(score.tokens for score in scores)
    return SpanScore(-math.fsum(score.logprob for score in scores) / tokens, tokens)


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate as a fusion rule sees it: what each model says of it, and who wrote it.

    `words` is its length in words (see `length_in_words`), `proposers` the numbers of the models
    that wrote it.
    """

    scores: tuple[SpanScore, ...]
    words: int
    proposers: tuple[int, ...]


FusionFunction = Callable[[Sequence[SpanScore], Sequence[float], int], float]
"""Takes the scores and weights of the models and the length in words (ends counted as one)."""

PoolFusion = Callable[[Sequence[Scored], Sequence[float]], list[float]]
"""Takes all candidates of a round and the weights of the models; gives F(s) of each candidate."""


def each(fuse: FusionFunction) -> PoolFusion:
    """Return the rule that fuses every candidate of a pool by itself."""

    def fuse_all(pool: Sequence[Scored], weights: Sequence[float]) -> list[float]:
        return [fuse(candidate.scores, weights, candidate.words) for candidate in pool]

    return fuse_all


def mean_nll(scores: Sequence[SpanScore], weights: Sequence[float], words: int) -> float:
    """Weighted mean of NLL_k(s) (eq. 5): a product of experts."""
    total = math.fsum(w * score.nll for w, score in zip(weights, scores, strict=True))
    return total / math.fsum(weights)


def mixture(scores: Sequence[SpanScore], weights: Sequence[float], words: int) -> float:
    """Negative log of the weighted mean of p_k(s), per word: a linear opinion pool."""
    terms = [
        math.log(weight) + score.logprob
        for weight, score in zip(weights, scores, strict=True)
        if weight > 0
    ]
    largest = max(terms)
    log_sum = largest + math.log(math.fsum(math.exp(term - largest) for term in terms))
    return (math.log(math.fsum(weights)) - log_sum) / words


def most_confident(scores: Sequence[SpanScore], weights: Sequence[float], words: int) -> float:
    """The smallest NLL_k(s): trusts the surer model, whatever the weights."""
    return min(score.nll for score in scores)


FUSIONS: dict[str, FusionFunction] = {
    "mean_nll": mean_nll,
    "mixture": mixture,
    "most_confident": most_confident,
}


def length_in_words(text: str, ends: bool) -> int:
    """Return a length that is the same for all tokenizers: words, at least 1, plus one for END."""
    return max(1, len(text.split())) + ends


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


def check_weights(weights: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """Return w_k, one per model; all 1 by default.

    Raises:
        UserError: a wrong number of weights, a negative one, or none above 0.
    """
    values = (1.0,) * count if weights is None else tuple(float(weight) for weight in weights)
    if len(values) != count:
        raise UserError(f"{len(values)} weights for {count} models; give one per model")
    if not all(math.isfinite(value) and value >= 0 for value in values) or not any(values):
        raise UserError(f"weights {list(values)} must be at least 0, one of them above")
    return values
