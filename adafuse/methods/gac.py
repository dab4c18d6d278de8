"""`gac`: averaging over the union of whole vocabularies (GaC, arXiv 2406.12585)."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from adafuse.decoding.fusion import WeightingOptions
from adafuse.decoding.method import Models
from adafuse.decoding.round import Example
from adafuse.decoding.token_round import TRACED, Choice, Entry, Mean, PendingText
from adafuse.engine.node import Program
from adafuse.methods.matched_tokens import ByModel, MatchesTokens, TokenFusionOptions
from adafuse.options import ModelNumber
from adafuse.tokenization.token_bytes import TokenKeys

if TYPE_CHECKING:
    import torch


class JointVocabulary:
    """`entries[column]` is a key; `columns[k]` the column of each id of model k, -1 without a key.

    Columns are in order of the first model that has the key, then of its id, which breaks ties.
    """

    def __init__(self, keys: Sequence[TokenKeys], devices: Sequence["torch.device"]) -> None:
        import torch

        column_of: dict[bytes, int] = {}
        self.columns = []
        for vocabulary, device in zip(keys, devices, strict=True):
            of_ids = [
                -1 if key is None else column_of.setdefault(key, len(column_of))
                for key in vocabulary.of
            ]
            self.columns.append(torch.tensor(of_ids, device=device))
        self.entries = list(column_of)

    def probabilities(self, number: int, logprobs: "torch.Tensor") -> "torch.Tensor":
        """Return p of model `number` per column, shape [columns], from its log-probabilities.

        Ids of the same key are added up; what ids without a key had goes to the others.
        """
        columns = self.columns[number].to(logprobs.device)
        p = logprobs.exp() * (columns >= 0)
        added = p.new_zeros(len(self.entries)).index_add(0, columns.clamp_min(0), p)
        return added / added.sum()

    def likeliest(
        self,
        logprobs: Mapping[int, "torch.Tensor"],
        weights: Sequence[float],
        count: int,
        mean: Mean = "arithmetic",
    ) -> list[Entry]:
        """Return the entries of largest weighted mean probability; `logprobs` by model number."""
        import torch

        from adafuse.engine.forward import largest

        by_model = [self.probabilities(number, vector) for number, vector in logprobs.items()]
        rows = torch.stack([row.to(by_model[0].device) for row in by_model])
        shares = rows.new_tensor([weights[number] for number in logprobs])
        terms = rows.log() if mean == "geometric" else rows
        fused = (shares[:, None] / shares.sum() * terms)[shares > 0].sum(dim=0)
        fused = fused.exp() if mean == "geometric" else fused
        columns = largest(fused[None], min(count, len(fused)))[0][0]
        table = torch.cat([fused[None], rows])[:, columns].T.tolist()
        favourites = rows.argmax(dim=1).tolist()
        entries = []
        for column, (merged, *row) in zip(columns.tolist(), table, strict=True):
            p = dict(zip(logprobs, row, strict=True))
            proposers = [k for k, best in zip(p, favourites, strict=True) if best == column]
            own = [p.get(number, math.nan) for number in range(len(weights))]
            entries.append(Entry.of(self.entries[column], proposers, own, merged))
        return entries


class GacOptions(WeightingOptions, TokenFusionOptions):
    """At which tokens the models are asked together."""

    renamed: ClassVar[dict[str, str]] = {"gate": "primary"}

    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    """use the other models only where the likeliest token of model `primary` has at most this
    probability; null: at every token"""
    primary: ModelNumber = 0
    """number of the model whose probability is compared with `threshold`"""


class Gac(MatchesTokens[GacOptions]):
    """Averages the probabilities of all tokens, matched by their bytes, with weights w_k, and takes
    the likeliest; all ends of all models are one entry."""

    name = "gac"
    Options = GacOptions

    def prepare(self, models: Models) -> None:
        super().prepare(models)
        devices = [model.device for model in models]
        self._joint = cache(lambda begins: JointVocabulary(self._keys(begins), devices))
        self._joint(False)

    def _read(self, texts: Sequence[PendingText]) -> Program[ByModel]:
        """Read only the primary model's distribution if that is sure enough."""
        if self.options.threshold is not None:
            after = yield from texts[self.options.primary].next_token()
            if math.exp(after.top_logprobs[0]) > self.options.threshold:
                return {self.options.primary: after}
        return (yield from super()._read(texts))

    def _fused(self, example: Example, nexts: ByModel, active: Sequence[int]) -> Choice:
        vectors = {k: nexts[k].logprobs for k in active}
        weights, count = example.weights, len(example.weights)
        shares = weights if any(weights[k] for k in active) else [1.0] * count
        entries = self._joint(example.begins).likeliest(vectors, shares, TRACED, self.options.mean)
        margins = ((nexts[k].margin,) if k in active else () for k in range(count))
        return Choice(entries, tuple(margins))
