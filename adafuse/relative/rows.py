"""Rows of a model's relative representation matrix, made when they are asked for.

Row i says how close token i is to each anchor, a token that all models have (arXiv 2404.12715,
section 3): cosines of input embeddings, scaled to length 1, times a factor, through a softmax. The
whole matrix would take 15 GB for 128,256 tokens and 29,110 anchors; decoding reads a few hundred
rows a step, mostly the same ones.
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch.nn.functional import normalize

from adafuse.errors import UserError
from adafuse.models.language_model import LanguageModel

CACHED_BYTES = 1 << 29
"""Rows kept per model, on its device: 4,610 of 29,110 anchors."""


class RelativeRows:
    """The relative rows of one model.

    It holds a float32 copy of the anchors' embeddings (477 MB for 29,110 anchors of 4,096
    dimensions) and up to `limit` bytes of the rows that were asked for last, on their device; a
    step takes 119 MB more for 512 rows of that length.
    """

    def __init__(
        self,
        embeddings: torch.Tensor,
        anchors: Sequence[int],
        factor: float,
        limit: int = CACHED_BYTES,
    ) -> None:
        self._embeddings = embeddings.detach()
        chosen = self._embeddings[torch.tensor(anchors, device=embeddings.device)]
        self._anchors = normalize(chosen.float(), dim=-1)
        self._factor = factor
        self._kept = max(1, limit // (4 * len(anchors)))
        self._rows: OrderedDict[int, torch.Tensor] = OrderedDict()

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of ids [n]: float64 [n, anchors], each a distribution.

        They are kept in float32, but add up to 1 exactly: AdamW makes large steps of the rounding
        errors of float32 gradients.
        """
        wanted = ids.tolist()
        missing = [index for index in wanted if index not in self._rows]
        if missing:
            made = self._made(torch.tensor(missing, device=self._embeddings.device))
            # Copies: a view would keep all rows made with it.
            self._rows.update(
                (index, row.clone()) for index, row in zip(missing, made, strict=True)
            )
        for index in wanted:
            self._rows.move_to_end(index)
        rows = torch.stack([self._rows[index] for index in wanted]).double()
        while len(self._rows) > self._kept:
            self._rows.popitem(last=False)
        return rows / rows.sum(dim=-1, keepdim=True)

    def __len__(self) -> int:
        """How many rows are kept at the moment."""
        return len(self._rows)

    def _made(self, ids: torch.Tensor) -> torch.Tensor:
        # A row's own length cancels in the second scaling, so products do for cosines.
        products = self._embeddings[ids].float() @ self._anchors.T
        return (self._factor * normalize(products, dim=-1)).softmax(dim=-1)


def relative_rows(models: Sequence[LanguageModel], factor: float) -> list[RelativeRows]:
    """Return the rows of each model; their anchors are the common tokens in one order.

    Raises:
        UserError: fewer than two common tokens, or a model without input embeddings.
    """
    embeddings = [_embeddings(model) for model in models]
    common = common_surfaces(models)
    if len(common) < 2:
        names = " and ".join(repr(model.name) for model in models)
        raise UserError(
            f"{names} have {len(common)} tokens in common, and deepen needs 2; use a method that"
            " fuses words"
        )
    return [
        RelativeRows(weight, [model.surfaces.ids[surface] for surface in common], factor)
        for model, weight in zip(models, embeddings, strict=True)
    ]


def common_surfaces(models: Sequence[LanguageModel]) -> list[bytes]:
    """Return the bytes that are a token of every model, sorted."""
    first, *others = (model.surfaces.ids for model in models)
    return sorted(surface for surface in first if all(surface in ids for ids in others))


def _embeddings(model: LanguageModel) -> torch.Tensor:
    try:
        weight = getattr(model.network.get_input_embeddings(), "weight", None)
    except NotImplementedError:
        weight = None
    if not isinstance(weight, torch.Tensor):
        raise UserError(
            f"model {model.name!r} has no input embeddings, which deepen compares; leave it out, or"
            " use another method"
        )
    return weight
