"""What methods share whose tokens of different vocabularies are matched by their bytes."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Literal, TypeVar

from adafuse.decoding.method import Method, Models
from adafuse.decoding.round import Example
from adafuse.decoding.token_round import Choice, MeanOptions, PendingText, fuse_tokens
from adafuse.engine.node import NextToken, Program, gather
from adafuse.tokenization.token_bytes import TokenKeys, written

ByModel = Mapping[int, NextToken]
"""Distributions after the text, by the model's number."""


class TokenFusionOptions(MeanOptions):
    """What methods share that average probabilities of tokens."""

    positions: Literal["all", "stable"] = "all"
    """positions at which a model takes part: all, or only those where its own tokenizer would begin
    a token (`stable`); change it when tokenizers split words or numbers differently"""


def stable(
    texts: Sequence[PendingText],
    nexts: Sequence[NextToken],
    keys: Sequence[TokenKeys],
    weights: Sequence[float],
) -> list[int]:
    """Return the numbers of the models that would begin a token after the text, too.

    Another one was led into a token that it never writes there, such as the "1" of its "15", and
    what it says of the next one is worth nothing (after SAFE, arXiv 2510.15346). It is out if
    it joins the likeliest next token of any model to what is there. Where no model of a weight
    above 0 is left, all are.
    """
    next_keys = {keys_k.of[after.greedy] for keys_k, after in zip(keys, nexts, strict=True)}
    surfaces = [surface for surface in next_keys if surface]
    left = [k for k, text in enumerate(texts) if all(map(text.splits_before, surfaces))]
    return left if any(weights[k] for k in left) else list(range(len(texts)))


TokenOptionsT = TypeVar("TokenOptionsT", bound=TokenFusionOptions)


class MatchesTokens(Method[TokenOptionsT]):
    """A method that averages next-token probabilities, of tokens that are matched by their bytes.

    Where Y begins after chat templates, tokens that differ in a leading space are one entry, and
    what is written of the best one is its likeliest token.
    """

    one_token = True

    @property
    def reads_distributions(self) -> bool:
        return True

    def prepare(self, models: Models) -> None:
        @cache
        def keys(begins: bool) -> list[TokenKeys]:
            return [TokenKeys.read(m.token_bytes.of, m.end_ids, begins=begins) for m in models]

        self._keys = keys
        keys(False)  # refuses a tokenizer without bytes

    def decode(self, example: Example) -> Program[None]:
        return fuse_tokens(example, partial(self._choose, example))

    def _choose(self, example: Example, texts: Sequence[PendingText]) -> Program[Choice]:
        keys = self._keys(example.begins)
        nexts = yield from self._read(texts)
        active = list(nexts)
        if self.options.positions == "stable" and len(nexts) == len(texts):
            active = stable(texts, list(nexts.values()), keys, example.weights)
        choice = self._fused(example, nexts, active)
        if not (example.begins and choice.entries):
            return choice
        best, *rest = choice.entries
        vectors = [nexts[k].logprobs for k in active]
        surface = written(best.surface, [keys[k] for k in active], vectors)
        return choice._replace(entries=[replace(best, surface=surface), *rest])

    def _read(self, texts: Sequence[PendingText]) -> Program[ByModel]:
        """Return the distributions that are read; by default those of all models."""
        nexts = yield from gather(pending.next_token() for pending in texts)
        return dict(enumerate(nexts))

    @abstractmethod
    def _fused(self, example: Example, nexts: ByModel, active: Sequence[int]) -> Choice:
        """Return the entries, best first, by the distributions of the models that are `active`."""
