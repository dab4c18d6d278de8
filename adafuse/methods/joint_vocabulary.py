"""The union of whole vocabularies: a column for every key that any model has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from adafuse.engine.tree import largest
from adafuse.tokenization.token_bytes import TokenKeys


@dataclass(frozen=True, slots=True)
class Ranked:
    """An entry with its fused probability, p_k by model, and the models whose likeliest it is."""

    key: bytes
    fused: float
    p: dict[int, float]
    favourite_of: tuple[int, ...]


@dataclass(frozen=True)
class JointVocabulary:
    """`entries[column]` is a key; `columns[k]` the column of each id of model k in `kept[k]`.

    Columns are in order of the first model that has the key, then of its id, which is how ties
    are broken. Ids without a key are not kept.
    """

    entries: tuple[bytes, ...]
    kept: tuple[torch.Tensor, ...]
    columns: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, keys: Sequence[TokenKeys], devices: Sequence[torch.device]) -> "JointVocabulary":
        """Unite vocabularies; the index of each lies on the device of its model."""
        place: dict[bytes, int] = {}
        kept, columns = [], []
        for vocabulary, device in zip(keys, devices, strict=True):
            known = [(i, key) for i, key in enumerate(vocabulary.of) if key is not None]
            numbers = [place.setdefault(key, len(place)) for _, key in known]
            kept.append(torch.tensor([index for index, _ in known], device=device))
            columns.append(torch.tensor(numbers, device=device))
        return cls(tuple(place), tuple(kept), tuple(columns))

    def probabilities(self, number: int, logprobs: torch.Tensor) -> torch.Tensor:
        """Return p of model `number` per column, shape [columns], from its log-probabilities.

        Ids of the same key are added up; what ids without a key had goes to the others.
        """
        kept, columns = (index[number].to(logprobs.device) for index in (self.kept, self.columns))
        p = logprobs.index_select(0, kept).softmax(0)
        return p.new_zeros(len(self.entries)).index_add(0, columns, p)

    def likeliest(
        self, logprobs: Mapping[int, torch.Tensor], weights: Sequence[float], count: int
    ) -> list[Ranked]:
        """Return the `count` entries of largest weighted mean probability, largest first.

        Args:
            logprobs: by number of the model, shape [vocabulary of that model].
            weights: w_k of all models.
            count: how many entries.
        """
        by_model = [self.probabilities(number, vector) for number, vector in logprobs.items()]
        rows = torch.stack([row.to(by_model[0].device) for row in by_model])
        merged = merge(rows, [weights[number] for number in logprobs])
        columns = largest(merged[None], min(count, len(merged)))[0][0]
        table = torch.cat([merged[None], rows])[:, columns].T.tolist()
        favourites = dict(zip(logprobs, rows.argmax(dim=1).tolist(), strict=True))
        return [
            Ranked(
                self.entries[column],
                fused,
                dict(zip(logprobs, own, strict=True)),
                tuple(number for number, its in favourites.items() if its == column),
            )
            for column, (fused, *own) in zip(columns.tolist(), table, strict=True)
        ]


def merge(rows: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    """Return the weighted mean of the rows, one per model: shape [columns]."""
    shares = rows.new_tensor(weights) / sum(weights)
    return (shares[:, None] * rows).sum(dim=0)
