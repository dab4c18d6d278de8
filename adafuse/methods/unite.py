"""The union of several models' likeliest tokens, and each model's probabilities over it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Literal

from adafuse.decoding.method import Method
from adafuse.decoding.round import Example
from adafuse.decoding.token_round import (
    Choice,
    Entry,
    PendingText,
    distributions,
    entry_of,
    fuse_tokens,
)
from adafuse.engine.node import Program
from adafuse.options import MethodOptions, ModelNumber, Positive, doc
from adafuse.tokenization.text import first_token
from adafuse.tokenization.token_bytes import END, TokenKeys, written

if TYPE_CHECKING:
    import torch

    from adafuse.engine.node import NextToken
    from adafuse.models.language_model import LanguageModel
    from adafuse.models.placement import Place

Duplicates = Literal["exclude", "keep", "zero"]
Normalise = Literal["union", "vocabulary"]


@dataclass(frozen=True, slots=True)
class Reading:
    """The ids whose probabilities a model gives to an entry.

    `duplicate` says that the entry is not in the vocabulary, and its first token, read in its
    place, already stands for another entry.
    """

    ids: tuple[int, ...]
    duplicate: bool = False


def union(ranked: Iterable[Sequence[bytes | None]]) -> list[bytes]:
    """Return the keys of several rankings in order of best rank, then of ranking."""
    rows = zip_longest(*ranked)
    return list(dict.fromkeys(key for row in rows for key in row if key is not None))


def readings(
    entries: Sequence[bytes],
    ids: Mapping[bytes, tuple[int, ...]],
    first_token: Callable[[bytes], int | None],
) -> list[Reading]:
    """Return where one model reads each entry.

    Args:
        entries: keys.
        ids: the model's ids of each key in its vocabulary.
        first_token: the model's first token of a key outside it; None if it cannot spell it.
    """
    used = {index for entry in entries for index in ids.get(entry, ())}
    found = []
    for entry in entries:
        if entry in ids:
            found.append(Reading(ids[entry]))
        else:
            tokens = [token for token in [first_token(entry)] if token is not None]
            found.append(Reading(tuple(tokens), duplicate=not used.isdisjoint(tokens)))
            used.update(tokens)
    return found


def logits(
    entries: Sequence[bytes],
    places: Sequence[Reading],
    vector: "torch.Tensor",
    duplicates: Duplicates,
) -> list[float]:
    """Return the logit of each entry: that of its likeliest id; END has the mass of all its ids.

    Args:
        entries: keys.
        places: one per entry.
        vector: the model's logits, shape [vocabulary]; one transfer brings over those needed.
        duplicates: what a duplicate gets: its token's logit ("keep"), 0 ("zero"), or minus
            infinity ("exclude").
    """
    known = iter(vector[[index for place in places for index in place.ids]].tolist())
    found = []
    for entry, place in zip(entries, places, strict=True):
        values = [next(known) for _ in place.ids]
        value = _log_sum_exp(values) if entry == END else max(values, default=-math.inf)
        if place.duplicate and duplicates != "keep":
            value = 0.0 if duplicates == "zero" else -math.inf
        found.append(value)
    return found


def probabilities(values: Sequence[float], normalise: Normalise) -> list[float]:
    """Return the softmax over the entries, or, of log-probabilities, just their exponentials."""
    total = _log_sum_exp(values) if normalise == "union" else 0.0
    return [math.exp(value - total) for value in values]


def average(rows: Sequence[Sequence[float]], weights: Sequence[float]) -> list[float]:
    """Return the weighted mean of the models' probabilities, per entry."""
    total = math.fsum(weights)
    return [
        math.fsum(w * p for w, p in zip(weights, column, strict=True)) / total
        for column in zip(*rows, strict=True)
    ]


def _log_sum_exp(values: Sequence[float]) -> float:
    largest = max(values)
    if largest == -math.inf:
        return largest
    return largest + math.log(math.fsum(math.exp(value - largest) for value in values))


class UniteOptions(MethodOptions):
    """What the paper leaves open, and where the published code differs."""

    top_k: Annotated[Positive, doc("k, how many of each model's likeliest tokens are united")] = 10
    primary: Annotated[
        ModelNumber, doc("number of the model whose tokens come first among equals")
    ] = 0
    duplicates: Annotated[
        Duplicates,
        doc(
            "what an entry gets in a model that lacks it and whose first token for it already"
            " stands for another entry: nothing (`exclude`), that token's probability (`keep`: the"
            " published code for SentencePiece models), or logit 0 (`zero`: the published code for"
            " others; not invariant to shifts, and above every other logit here, where logits are"
            " log-probabilities)"
        ),
    ] = "exclude"
    normalise: Annotated[
        Normalise,
        doc("take probabilities over the union, as published, or over the whole vocabulary"),
    ] = "union"
    commit: Annotated[
        Literal["surface", "first_token"],
        doc("write the chosen string, or, as published, the primary's first token of it"),
    ] = "surface"


class Unite(Method[UniteOptions]):
    """Unites the models' likeliest tokens, averages what the models give to each, with weights w_k,
    and takes the best; ties go to the better rank, then to the primary."""

    name = "unite"
    Options = UniteOptions

    @property
    def top(self) -> int:
        """k, and two for the margin."""
        return max(2, self.options.top_k)

    def prepare(self, models: Sequence["LanguageModel"], place: "Place") -> None:
        """Read what the tokens are compared by, at the first position behind a template, too."""
        chat = any(model.chat for model in models)
        self._keys = [TokenKeys.read(model.token_bytes.of, model.stop_ids) for model in models]
        self._first_keys = (
            [TokenKeys.read(model.token_bytes.of, model.stop_ids, begins=True) for model in models]
            if chat
            else None
        )
        others = (number for number in range(len(models)) if number != self.options.primary)
        self._order = (self.options.primary, *others)

    def decode(self, example: Example) -> Program[None]:
        """Decode one token of the union a round."""

        def choose(texts: Sequence[PendingText]) -> Program[Choice]:
            return self._choose(texts, example.weights)

        return fuse_tokens(example, choose)

    def _choose(self, texts: Sequence[PendingText], weights: Sequence[float]) -> Program[Choice]:
        known = yield from distributions(texts)
        begun = any(pending.generated for pending in texts)
        keys = self._keys if begun or self._first_keys is None else self._first_keys
        top_k = [
            [own.of[z] for z in after.top_ids[: self.options.top_k]]
            for own, after in zip(keys, known, strict=True)
        ]
        entries = union(top_k[number] for number in self._order)
        rows = [
            self._probabilities(entries, pending, own, after)
            for pending, own, after in zip(texts, keys, known, strict=True)
        ]
        fused = average(rows, weights)
        found = [
            entry_of(key, [k for k, top in enumerate(top_k) if key in top], row, p)
            for key, *row, p in zip(entries, *rows, fused, strict=True)
        ]
        found.sort(key=lambda each: each.fused)
        if keys is self._first_keys and found:
            surface = written(found[0].surface, keys, [after.logprobs for after in known])
            found[0] = replace(found[0], surface=surface)
        if self.options.commit == "first_token":
            found[0] = self._begun(found[0], texts)
        return Choice(found, tuple((after.margin,) for after in known))

    def _probabilities(
        self, entries: Sequence[bytes], pending: PendingText, keys: TokenKeys, after: "NextToken"
    ) -> list[float]:
        """p_k of each entry: by its ids, or by its first token where the vocabulary lacks it."""
        places = readings(entries, keys.ids, partial(first_token, pending.sequence.model))
        values = logits(entries, places, after.logprobs, self.options.duplicates)
        return probabilities(values, self.options.normalise)

    def _begun(self, chosen: Entry, texts: Sequence[PendingText]) -> Entry:
        primary = self.options.primary
        model = texts[primary].sequence.model
        token = first_token(model, chosen.surface)
        surface = None if token is None else model.token_bytes.of[token]
        return replace(chosen, surface=surface) if surface else chosen
