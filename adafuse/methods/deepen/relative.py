"""Relative representations of tokens, and the search back from them (arXiv 2404.12715)."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn.functional import kl_div, normalize
from torch.optim.lr_scheduler import LambdaLR

from adafuse.errors import UserError
from adafuse.models.language_model import LoadedModel


class RelativeRows:
    """The relative rows of one model; those used last are kept, in `limit` bytes.

    For 29,110 anchors of 4,096 dimensions these take 477 MB, and there is room for 4,610 rows.
    """

    def __init__(
        self, embeddings: torch.Tensor, anchors: Sequence[int], factor: float, limit: int = 1 << 29
    ) -> None:
        self._embeddings = embeddings.detach()
        chosen = self._embeddings[torch.tensor(anchors, device=embeddings.device)]
        self._anchors = normalize(chosen.float(), dim=-1)
        self._factor = factor
        self._kept = max(1, limit // (4 * len(anchors)))
        self._rows: OrderedDict[int, torch.Tensor] = OrderedDict()

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of ids [n]: float64 [n, anchors], each a distribution.

        They add up to 1 exactly: AdamW makes large steps of the rounding errors of float32.
        """
        indices = ids.tolist()
        missing = [index for index in indices if index not in self._rows]
        if missing:
            made = self._made(torch.tensor(missing, device=self._embeddings.device))
            # Copies: a view would keep all rows made with it.
            self._rows.update(
                (index, row.clone()) for index, row in zip(missing, made, strict=True)
            )
        for index in indices:
            self._rows.move_to_end(index)
        rows = torch.stack([self._rows[index] for index in indices]).double()
        while len(self._rows) > self._kept:
            self._rows.popitem(last=False)
        return rows / rows.sum(dim=-1, keepdim=True)

    def _made(self, ids: torch.Tensor) -> torch.Tensor:
        # A row's own length cancels in the second scaling, so products do for cosines.
        products = self._embeddings[ids].float() @ self._anchors.T
        return (self._factor * normalize(products, dim=-1)).softmax(dim=-1)


def relative_rows(models: Sequence[LoadedModel], factor: float) -> list[RelativeRows]:
    """Return the rows of each model; their anchors are the common tokens in one order."""
    embeddings = [_embeddings(model) for model in models]
    common = common_tokens(models)
    if len(common) < 2:
        names = " and ".join(repr(model.name) for model in models)
        raise UserError(
            f"{names} have {len(common)} tokens in common, and deepen needs 2; use a method that"
            " fuses words"
        )
    return [
        RelativeRows(weight, [model.token_bytes.ids[surface] for surface in common], factor)
        for model, weight in zip(models, embeddings, strict=True)
    ]


def common_tokens(models: Sequence[LoadedModel]) -> list[bytes]:
    """Return the bytes that are a token of every model, sorted."""
    first, *others = (model.token_bytes.ids for model in models)
    return sorted(surface for surface in first if all(surface in ids for ids in others))


def _embeddings(model: LoadedModel) -> torch.Tensor:
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


AGREED = 1e-12
"""A divergence up to this (nats) is rounding, of which AdamW would make steps of full size."""


def _cosine(step: int) -> float:
    """Return the share of the learning rate at a step: from 1 to 0.25 in 10 steps."""
    return 0.25 + 0.75 * (1 + math.cos(math.pi * step / 10)) / 2


@dataclass(frozen=True)
class InverseSearch:
    """AdamW from the model's own logits towards a target, without convergence.

    `reduction` "mean" divides the divergence by the number of anchors: gradients get so small that
    rare tokens hardly move. Unlike the published code, the search stops at the target.
    """

    learning_rate: float
    steps: int = 5
    weight_decay: float = 0.01
    reduction: Literal["mean", "sum"] = "mean"

    @property
    def reach(self) -> float:
        """About the most nats that any logit can move: the sum of the learning rates."""
        return self.learning_rate * math.fsum(map(_cosine, range(self.steps)))

    @torch.enable_grad()
    def __call__(
        self, logits: torch.Tensor, rows: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, list[float]]:
        """Return the logits [n] that it finds for rows [n, anchors], and the losses on its way."""
        x = logits.detach().to(rows, copy=True).requires_grad_()
        target = target.to(rows.device)
        optimizer = torch.optim.AdamW([x], self.learning_rate, weight_decay=self.weight_decay)
        schedule = LambdaLR(optimizer, _cosine)
        losses: list[float] = []
        for _ in range(self.steps):
            loss = self.loss(x, rows, target)
            losses.append(float(loss.detach()))
            if losses[-1] <= AGREED * self._scale(target):
                break
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        return x.detach(), losses

    def loss(self, x: torch.Tensor, rows: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return sum_a q_a (log q_a - log (softmax(x) R)_a), times 1/A for "mean"."""
        reached = x.softmax(dim=-1) @ rows
        # An anchor that no token comes near would make the loss and every gradient nan.
        log_reached = reached.clamp_min(torch.finfo(reached.dtype).tiny).log()
        return kl_div(log_reached, target, reduction="sum") * self._scale(target)

    def _scale(self, target: torch.Tensor) -> float:
        return 1 / len(target) if self.reduction == "mean" else 1.0
