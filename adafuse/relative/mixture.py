"""What a model says as a distribution over the anchors, and what all models say on average."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def likeliest(
    vector: "torch.Tensor", count: int, without: Sequence[int] = ()
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Return the `count` likeliest ids, in ascending order, and their log-probabilities.

    Ties go to the lower id; the ids `without` are passed over.
    """
    if without:
        vector = vector.clone()
        vector[list(without)] = -math.inf
        count = min(count, len(vector) - len(without))
    ids = vector.sort(descending=True, stable=True).indices[:count].sort().values
    return ids, vector[ids]


def expected(logits: "torch.Tensor", rows: "torch.Tensor") -> "torch.Tensor":
    """Return r = p R for p = softmax(logits) over the ids of the rows: float64 [anchors]."""
    return logits.double().softmax(dim=-1).to(rows.device) @ rows


def mean(r: Sequence["torch.Tensor"], weights: Sequence[float]) -> "torch.Tensor":
    """Return q = sum_m w_m r_m, the weights adding up to 1, where the first of r is."""
    total = math.fsum(weights)
    q = r[0] * (weights[0] / total)
    for weight, each in zip(weights[1:], r[1:], strict=True):
        q = q + each.to(q.device) * (weight / total)
    return q
