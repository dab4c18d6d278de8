"""`unite`: averaging over the union of the likeliest tokens (UniTE, arXiv 2410.03777)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adafuse.decoding.fusion import WeightingOptions, softmax
from adafuse.decoding.method import Models
from adafuse.decoding.round import Example
from adafuse.decoding.token_round import (
    Choice,
    Entry,
    PendingText,
    average,
)
from adafuse.engine.node import Program
from adafuse.methods.matched_tokens import ByModel, MatchesTokens, TokenFusionOptions
from adafuse.options import ModelNumber, Positive
from adafuse.tokenization.text import first_token
from adafuse.tokenization.token_bytes import END

Duplicates = Literal["exclude", "keep", "zero"]
Normalise = Literal["union", "vocabulary"]
Values = NDArray[np.float64]


def union(ranked: Iterable[Sequence[bytes | None]]) -> list[bytes]:
    """Return the keys of several rankings in order of best rank, then of ranking."""
    rows = zip_longest(*ranked)
    return list(dict.fromkeys(key for row in rows for key in row if key is not None))


def logits(
    entries: Sequence[bytes],
    ids: Mapping[bytes, tuple[int, ...]],
    first_token: Callable[[bytes], int | None],
    vector: NDArray[np.float32],
    duplicates: Duplicates,
) -> Values:
    """Return one model's logit of each entry: that of its likeliest id, or all of END's together.

    Args:
        entries: keys.
        ids: the model's ids of each key in its vocabulary.
        first_token: the first token of a key outside it, read in its place; None if there is none.
        vector: the model's logits, shape [vocabulary].
        duplicates: what an entry gets whose first token stands for another entry already: that
            token's logit ("keep"), 0 ("zero"), or minus infinity ("exclude").
    """
    used = {index for entry in entries for index in ids.get(entry, ())}
    values = []
    for entry in entries:
        if entry in ids:
            of_ids = vector[list(ids[entry])].astype(np.float64)
            values.append(np.logaddexp.reduce(of_ids) if entry == END else of_ids.max())
            continue
        token = first_token(entry)
        if token is None:
            values.append(-math.inf)
        elif token in used and duplicates != "keep":
            values.append(0.0 if duplicates == "zero" else -math.inf)
        else:
            values.append(vector[token])
            used.add(token)
    return np.array(values, np.float64)


def probabilities(values: Values, normalise: Normalise) -> Values:
    """Return the softmax over the entries, or, of log-probabilities, just their exponentials."""
    return softmax(values) if normalise == "union" else np.exp(values)


def consistent(rows: Values, weights: Values) -> tuple[Values, Values]:
    """Return probabilities without what one model alone says, and w_k(x) (CoRE, 2510.13855).

    Each probability is multiplied by how close it is to the mean of the models, (exp(-2 |p_k -
    mean p|) - exp(-2)) / (1 - exp(-2)), over the mean of that. w_k is multiplied by the sum of the
    same over the entropy of p_k, so that models count that are sure and agree with others. In the
    published code, a main model is spared the first, and has at least half of the weights.

    Args:
        rows: p_k of each entry, shape [models, entries].
        weights: w_k, shape [models].
    """
    mean = np.average(rows, axis=0, weights=weights)
    close = np.exp(-2 * np.abs(rows - mean)) - math.exp(-2)
    close = np.where(rows > 0, close / (1 - math.exp(-2)), 0.0)
    logs = np.log(rows, out=np.zeros_like(rows), where=rows > 0)
    entropy = np.maximum(-(rows * logs).sum(axis=1), 1e-12)
    sums = close.sum(axis=1)
    of_models = weights * sums / entropy
    per_entry = close * ((rows > 0).sum(axis=1) / np.maximum(sums, 1e-12))[:, None]
    return rows * per_entry, of_models / of_models.sum()


class UniteOptions(WeightingOptions, TokenFusionOptions):
    """What the paper leaves open, and where the published code differs."""

    weighting: Literal["given", "prompt", "consistency"] = "given"  # type: ignore[assignment]
    """w_k: the weights of the run (`given`), or these multiplied by how likely each model finds the
    question (`prompt`) or by its agreement with the others on the next token (`consistency`);
    change it when each model knows things that the others do not"""
    top_k: Positive = 10
    """k of each model's top-k tokens in the union"""
    primary: ModelNumber = 0
    """number of the model whose tokens win ties"""
    duplicates: Duplicates = "exclude"
    """probability that a model gives to an entry that is not one of its tokens, if the first of
    the tokens that spell the entry already stands for another one: 0 (`exclude`), that of this
    first token (`keep`, as published for SentencePiece models), or that of a logit of 0 (`zero`, as
    published for other models; logits here are log-probabilities, so 0 is above all others)"""
    normalise: Normalise = "union"
    """normalise probabilities over the union (as published) or over the whole vocabulary"""
    commit: Literal["surface", "first_token"] = "surface"
    """commit the chosen string (`surface`) or, as published, the primary's first token of it"""


class Unite(MatchesTokens[UniteOptions]):
    """Unites the models' likeliest tokens, averages what the models give to each, with weights w_k,
    and takes the best; ties go to the better rank, then to the primary."""

    name = "unite"
    Options = UniteOptions

    @property
    def top(self) -> int:
        return max(2, self.options.top_k)

    def prepare(self, models: Models) -> None:
        super().prepare(models)
        others = (number for number in range(len(models)) if number != self.options.primary)
        self._order = (self.options.primary, *others)

    def _choose(self, example: Example, texts: Sequence[PendingText]) -> Program[Choice]:
        choice = yield from super()._choose(example, texts)
        if self.options.commit == "surface" or not choice.entries:
            return choice
        best, *rest = choice.entries
        model = texts[self.options.primary].sequence.model
        token = first_token(model, best.surface)
        surface = None if token is None else model.token_bytes.of[token]
        return choice._replace(entries=[replace(best, surface=surface or best.surface), *rest])

    def _fused(self, example: Example, nexts: ByModel, active: Sequence[int]) -> Choice:
        keys = self._keys(example.begins)
        top_k = [
            [keys[k].of[z] for z in after.top_ids[: self.options.top_k]] if k in active else []
            for k, after in nexts.items()
        ]
        surfaces = union(top_k[number] for number in self._order)
        rows = np.full((len(example.weights), len(surfaces)), math.nan)
        for k in active:
            spell, vector = partial(first_token, example.sequences[k].model), nexts[k].logprobs
            values = logits(
                surfaces, keys[k].ids, spell, vector.cpu().numpy(), self.options.duplicates
            )
            rows[k] = probabilities(values, self.options.normalise)
        p, shares = rows[active], np.array([example.weights[k] for k in active])
        of_models: tuple[float, ...] = ()
        if self.options.weighting == "consistency":
            p, shares = consistent(p, shares)
            by_model = dict(zip(active, shares.tolist(), strict=True))
            of_models = tuple(by_model.get(k, 0.0) for k in range(len(example.weights)))
        fused = average(p, shares, self.options.mean)
        entries = [
            Entry.of(key, [k for k, top in enumerate(top_k) if key in top], row, p)
            for key, row, p in zip(surfaces, np.transpose(rows), fused, strict=True)
        ]
        entries.sort(key=lambda entry: entry.fused)
        return Choice(entries, tuple((after.margin,) for after in nexts.values()), of_models)
