"""F(s): how the NLLs of several models become one score; the smallest wins (eq. 5, 6)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


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
