"""F(s): how the NLLs of several models become one score; the smallest wins (eq. 5, 6)."""

import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Annotated, Literal, Self, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from adafuse.decoding.candidates import Span
from adafuse.decoding.gate import read_gate
from adafuse.errors import ExampleError, UserError
from adafuse.options import Located, MethodOptions, WordTokens, listed
from adafuse.plugins import is_outside, not_there, note, said, twice

FusionRule = Callable[[Span, Sequence[float]], float]
"""Computes F(s) from a scored candidate s and the weights w_k of the models; lower is better."""

PoolFusion = Callable[[Sequence[Span], Sequence[float]], tuple[list[float], Sequence[float]]]
"""Computes F(s) of all candidates of a round at once, and the weights w_k of the round, from the
candidates (their NLLs are finite) and the weights w_k of the ensemble."""

FUSION_RULES: dict[str, FusionRule] = {}
"""What users name as `fusion`, besides `LEARNED`."""

LEARNED = "learned"


def fusion_rule(rule: FusionRule) -> FusionRule:
    """Register a fusion rule under the name of its function; usable as a decorator.

    Raises:
        UserError: another fusion rule has that name.
    """
    note(rule)
    name = rule.__name__
    known = LEARNED if name == LEARNED else FUSION_RULES.setdefault(name, rule)
    if known is not rule:
        raise UserError(twice("fusion rule", name, known, rule))
    return rule


def per_candidate(rule: FusionRule) -> PoolFusion:
    """Return the rule that fuses every candidate of a pool by itself."""

    def fuse(pool: Sequence[Span], weights: Sequence[float]) -> tuple[list[float], Sequence[float]]:
        return [_fused(rule, candidate, weights) for candidate in pool], weights

    return fuse


def _fused(rule: FusionRule, candidate: Span, weights: Sequence[float]) -> float:
    name = getattr(rule, "__name__", repr(rule))
    try:
        fused: object = rule(candidate, weights)
    except Exception as error:
        if not is_outside(rule):
            raise
        raise ExampleError(f"fusion rule {name!r}: {said(error, rule)}") from error
    if not is_score(fused):
        raise ExampleError(f"fusion rule {name!r} returned {fused!r}; return a finite number")
    return float(fused)


def is_score(value: object) -> TypeGuard[float]:
    """Whether a value can be an F(s)."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


@fusion_rule
def mean_nll(candidate: Span, weights: Sequence[float]) -> float:
    """Weighted mean, over the models k, of NLL_k(s) (eq. 5): a product of experts."""
    return weighted_mean(candidate.nll, weights)


@fusion_rule
def mixture(candidate: Span, weights: Sequence[float]) -> float:
    """Negative log of the weighted mean of p_k(s), per word: a linear opinion pool."""
    terms = [math.log(w) + candidate.logprob(k) for k, w in enumerate(weights) if w > 0]
    return (math.log(math.fsum(weights)) - float(np.logaddexp.reduce(terms))) / candidate.length


@fusion_rule
def most_confident(candidate: Span, weights: Sequence[float]) -> float:
    """The lowest NLL_k(s) of the models whose weight is above 0; the weights have no other use."""
    return min(nll for nll, w in zip(candidate.nll, weights, strict=True) if w > 0)


def mean_perplexity(candidate: Span, weights: Sequence[float]) -> float:
    """Weighted arithmetic mean of the perplexities exp(NLL_k(s)) (arXiv 2407.19807)."""
    return weighted_mean(_perplexities(candidate), weights)


def filtered_perplexity(ratio: float) -> FusionRule:
    """Return the mean perplexity without unfaithful scores.

    Where the largest perplexity is more than `ratio` times the smallest, both are dropped with
    their weights; if none is left, only the largest is. Models of weight 0 have no say in it.
    """

    def fuse(candidate: Span, weights: Sequence[float]) -> float:
        pairs = zip(_perplexities(candidate), weights, strict=True)
        kept = sorted(pair for pair in pairs if pair[1] > 0)
        if kept[-1][0] > ratio * kept[0][0]:
            kept = kept[1:-1] or kept[:-1]
        return weighted_mean(*zip(*kept, strict=True))

    return fuse


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = math.fsum(w * value for w, value in zip(weights, values, strict=True) if w > 0)
    return total / math.fsum(weights)


def softmax(logs: ArrayLike) -> NDArray[np.float64]:
    """Return exp(logs), normalised over the last axis; minus infinity becomes 0."""
    return np.asarray(np.exp(logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True)))


def _perplexities(candidate: Span) -> list[float]:
    # math.exp overflows above 709; so large a perplexity loses anyway.
    return [math.exp(min(nll, 700.0)) for nll in candidate.nll]


def _registered(rule: str | FusionRule) -> str | FusionRule:
    if isinstance(rule, str) and rule not in (names := [*FUSION_RULES, LEARNED]):
        raise ValueError(not_there("fusion rule", rule, names))
    return rule


class WeightingOptions(MethodOptions):
    """Whether an example has weights of its own."""

    weighting: Literal["given", "prompt"] = "given"
    """w_k: the weights of the run (`given`), or these multiplied by how likely each model finds the
    question (`prompt`); change it when each model knows things that the others do not"""


class FusionOptions(WeightingOptions):
    """What every method that fuses words shares."""

    replaced_by_gate = frozenset({"fusion", "gate"})
    fusion: Annotated[
        str | SkipJsonSchema[FusionRule],
        AfterValidator(_registered),
        Field(
            description="fusion rule, F(s): the mean of the models' NLLs (the paper's), the NLL of"
            " their mixture, the lowest of their NLLs, or a learned `gate`; in Python also a"
            " function",
            json_schema_extra=lambda schema: schema.update(enum=[*FUSION_RULES, LEARNED]),
        ),
    ] = "mean_nll"
    gate: Located | None = None
    """file that `adafuse fit` wrote for these models; in a configuration also `development`: the
    workflow fits one on the development rows of each benchmark; change it when `fusion` is
    `learned`"""
    max_word_tokens: WordTokens = 16

    @model_validator(mode="after")
    def _gate_is_for_learned(self) -> Self:
        if self.fusion == LEARNED and self.gate is None:
            raise ValueError("fusion learned needs a gate; name the file that `adafuse fit` wrote")
        if self.fusion != LEARNED and self.gate is not None:
            raise ValueError(f"gate {self.gate!r} needs fusion learned, not {self.fusion}; set it")
        if self.fusion == LEARNED and self.weighting != "given":
            raise ValueError(
                f"fusion learned has its own weights; remove weighting {self.weighting!r}"
            )
        return self

    @property
    def functions(self) -> tuple[object, ...]:
        """The fusion rule."""
        rule = self.fusion
        return (FUSION_RULES.get(rule) if isinstance(rule, str) else rule,)

    def rule(self, models: Sequence[str]) -> PoolFusion:
        """Return the rule for models by their paths; with a gate, that of the gate."""
        if self.gate is not None:
            return read_gate(self.gate).rule(models, self.gate)
        rule = FUSION_RULES[self.fusion] if isinstance(self.fusion, str) else self.fusion
        return per_candidate(rule)


_MOST = 1e100  # of all weights; times NLLs, much more is infinite


def check_weights(weights: Iterable[float] | None, count: int) -> tuple[float, ...]:
    """Return w_k, one per model and all 1 by default; refuse negative ones, or none above 0.

    A `count` of 0 is that of a method without models, which takes any number of weights.
    """
    entries = "of numbers, one per model"
    given = [1.0] * count if weights is None else listed(weights, "weights", entries)
    if not all(isinstance(weight, Real) for weight in given):
        raise UserError(f"weights is {given!r:.60}; give a list {entries}")
    values = tuple(map(float, given))
    if count and len(values) != count:
        raise UserError(f"{len(values)} weights for {count} models; give one per model")
    if not all(math.isfinite(value) and value >= 0 for value in values) or not any(values):
        raise UserError(f"weights {list(values)} must be at least 0, and one of them above 0")
    if sum(values) > _MOST:
        raise UserError(f"weights {list(values)} are too large; divide them by the largest")
    return values
