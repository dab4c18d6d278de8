"""The union of several models' likeliest tokens, and each model's probabilities over it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

from adafuse.tokens.keys import END

if TYPE_CHECKING:
    import torch

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
