"""What a forward of one token costs at least: reading the weights once (engine.md, "On a GPU")."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from adafuse.engine.support import engine_for
from adafuse.models.language_model import LanguageModel

WARM_UP = 8
"""Steps that are not measured: among them those that capture a graph."""
COPIED = {"cuda": 1 << 30, "cpu": 1 << 26}
"""Bytes of a copy: more than the caches hold."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Seconds of one-token steps of a model, its bytes of weights, and bytes per second of a copy.

    A copy counts what it reads and what it writes.
    """

    model: str
    seconds: float
    weights: int
    bandwidth: float

    @property
    def ratio(self) -> float:
        """How often the weights could have been read in the time of a step."""
        return self.seconds * self.bandwidth / self.weights


def floor(model: LanguageModel, repeats: int = 50) -> Floor:
    """Measure steps of one token behind a short prompt at batch 1, and copies: medians."""
    weights = sum(p.numel() * p.element_size() for p in model.network.parameters())
    return Floor(model.name, _step(model, repeats), weights, _bandwidth(model.device, repeats))


def _step(model: LanguageModel, repeats: int) -> float:
    engine = engine_for(model, "tree", top=2, rows=1)
    sequence = engine.open([index % model.vocabulary for index in range(3, 35)])

    def step() -> None:
        engine.evaluate([sequence.root])
        assert sequence.root.next is not None
        engine.commit(sequence.root.child(sequence.root.next.greedy))

    for _ in range(WARM_UP):
        step()
    seconds = median(_timed(step, model.device) for _ in range(repeats))
    engine.close(sequence)
    return seconds


def _bandwidth(device: torch.device, repeats: int) -> float:
    size = COPIED.get(device.type, COPIED["cpu"])
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = median(_timed(lambda: target.copy_(source), device) for _ in range(repeats))
    return 2 * size / seconds


def _timed(run: Callable[[], object], device: torch.device) -> float:
    settle(device)
    start = time.perf_counter()
    run()
    settle(device)
    return time.perf_counter() - start


def settle(device: torch.device) -> None:
    """Wait until a device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
