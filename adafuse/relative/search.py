"""The inverse search: which logits of a model have the wanted relative representation.

ArXiv 2404.12715, section 3.3, with what the authors' code adds to it: AdamW, and a learning rate
that falls by a cosine.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn.functional import kl_div
from torch.optim.lr_scheduler import CosineAnnealingLR

Reduction = Literal["mean", "sum"]
AGREED = 1e-12
"""A divergence up to this (nats) is rounding, of which AdamW would make steps of full size."""
_PERIOD = 10
_LAST_RATE = 0.25


@dataclass(frozen=True)
class InverseSearch:
    """AdamW from the model's own logits towards a target; `steps` of them are not convergence.

    `reduction` "mean" divides the divergence by the number of anchors, as the published code does:
    gradients get so small that rare tokens hardly move. The search stops where nothing is left to
    find, which that code does not.
    """

    learning_rate: float
    steps: int = 5
    weight_decay: float = 0.01
    reduction: Reduction = "mean"

    @property
    def reach(self) -> float:
        """About the most nats that any logit can move: the sum of the learning rates."""
        optimizer, schedule = self._optimizer(torch.zeros(1, requires_grad=True))
        total = 0.0
        for _ in range(self.steps):
            total += float(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return total

    @torch.enable_grad()
    def __call__(
        self, logits: torch.Tensor, rows: torch.Tensor, target: torch.Tensor
    ) -> tuple[torch.Tensor, list[float]]:
        """Return the logits found, and the loss before each step taken.

        Args:
            logits: where the search starts, [n].
            rows: the relative rows of these ids, float64 [n, anchors].
            target: the relative representation that is wanted, float64 [anchors].
        """
        x = logits.detach().to(rows, copy=True).requires_grad_()
        target = target.to(rows.device)
        optimizer, schedule = self._optimizer(x)
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

    def _optimizer(self, x: torch.Tensor) -> tuple[torch.optim.AdamW, CosineAnnealingLR]:
        optimizer = torch.optim.AdamW(
            [x], self.learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=self.weight_decay
        )
        lowest = _LAST_RATE * self.learning_rate
        return optimizer, CosineAnnealingLR(optimizer, T_max=_PERIOD, eta_min=lowest)
