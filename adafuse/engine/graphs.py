"""Forwards of a few tokens as CUDA graphs: without launches, a forward costs what it reads.

Every tensor of the engine has a fixed address, so that a forward of one shape can be captured once
and replayed with other values. Shapes are rounded up to a few buckets.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch

from adafuse.engine.forward import Forward, ForwardBatch, Inputs, Masks, Shape
from adafuse.models.language_model import LoadedModel

logger = logging.getLogger(__name__)

MOST_TOKENS = 32
"""Rows with more new tokens are prompts, whose forwards are not bound by launches."""
MOST_LOGITS = 256
"""Graphs keep the logits of all their tokens; so many at most."""
MOST_GRAPHS = 64
"""Beyond so many the one that was not used for longest goes."""
SIGHTINGS = 3
"""A bucket is captured when it comes for this time; rare ones are not worth it."""
VIEW_STEP = 256

Replay = Callable[[], None]
Recorder = Callable[[Callable[[], torch.Tensor]], tuple[Replay, torch.Tensor]]
"""Takes a computation over fixed tensors; returns how to repeat it, and where its result lies."""


class CudaRecorder:
    """Captures computations as CUDA graphs, which run one after the other and share memory.

    CUDA gives that memory back with the last of them, and then takes no more graphs into it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = None

    def __call__(self, compute: Callable[[], torch.Tensor]) -> tuple[Replay, torch.Tensor]:
        """Capture a computation on the device; what runs on another one is not captured."""
        stream, graph = _stream(self._device), torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # libraries set themselves up outside the capture
                compute()
            # Other threads may use the device meanwhile: the server prepares methods in one.
            with torch.cuda.graph(graph, self._pool, stream, capture_error_mode="thread_local"):
                result = compute()
        self._pool = graph.pool()
        return graph.replay, result


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """Return where graphs of a device are captured: for each stream cuBLAS keeps a workspace."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class _Graph(NamedTuple):
    """A captured forward: the tensors it reads, and the logits of all tokens, [R, Q, outputs]."""

    inputs: Inputs
    masks: Masks
    replay: Replay
    logits: torch.Tensor


class Graphs:
    """A forward that replays captured graphs where it can, and runs as it is elsewhere."""

    def __init__(
        self, forward: Forward, recorder: Callable[[torch.device], Recorder] = CudaRecorder
    ) -> None:
        self._forward = forward
        self._recorder = recorder
        self._record: Recorder | None = recorder(forward.model.device)
        self._sighted: Counter[Shape] = Counter()
        self._graphs: dict[Shape, _Graph] = {}
        """The one used last comes last."""
        self._slots = forward.cache.slots

    def __call__(self, batch: ForwardBatch) -> torch.Tensor:
        """Return the logits of the nodes of a batch: [nodes, rows of the output layer]."""
        rows, slots = self._forward.cache.rows, self._forward.cache.slots
        if self._slots != slots:  # the tensors have moved
            self._slots = slots
            self._graphs.clear()
            self._record = self._record and self._recorder(self._forward.model.device)
        shape = bucket(batch.shape, rows, slots)
        if self._record is None or shape is None:
            return self._forward(batch)
        self._sighted[shape] += 1
        if self._sighted[shape] < SIGHTINGS:
            return self._forward(batch)
        inputs = self._forward.inputs(batch, shape)
        masks = self._forward.masks(inputs)
        graph = self._graphs.pop(shape, None) or self._captured(inputs, masks, self._record)
        if graph is None:
            return self._forward(batch)
        self._graphs[shape] = graph
        if len(self._graphs) > MOST_GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        graph.inputs.fixed.copy_(inputs.fixed)
        for kind, mask in masks.items():
            graph.masks[kind].copy_(mask)
        graph.replay()
        return graph.logits[*inputs.reads]

    def _captured(self, inputs: Inputs, masks: Masks, record: Recorder) -> _Graph | None:
        def compute() -> torch.Tensor:
            return self._forward.network(inputs, masks, inputs.shape.tokens)

        try:
            replay, logits = record(compute)
            logits.fill_(math.nan)
            replay()
            if logits.isnan().all():
                raise RuntimeError("what was recorded computes nothing")
            return _Graph(inputs, masks, replay, logits)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._record = None
            self._graphs.clear()
            reason = str(error).strip().split("\n")[0]
            name = self._forward.model.name
            logger.warning("%s runs without CUDA graphs, which is slower: %s", name, reason)
            return None


def capturable(model: LoadedModel) -> bool:
    """Return whether a model lies on one CUDA device: a graph does not reach beyond."""
    devices = {parameter.device for parameter in model.network.parameters()}
    return len(devices) == 1 and devices.pop().type == "cuda"


def bucket(shape: Shape, rows: int, slots: int) -> Shape | None:
    """Return the captured shape that holds `shape` in a cache of rows x slots, if there is one."""
    tokens = _power_of_two(shape.tokens)
    size = min(rows, _power_of_two(shape.rows))
    if tokens > MOST_TOKENS or size * tokens > max(MOST_LOGITS, rows):
        return None
    step = VIEW_STEP if shape.view <= 4 * VIEW_STEP else 2 * VIEW_STEP
    return Shape(size, tokens, min(slots, -(-shape.view // step) * step))


def _power_of_two(count: int) -> int:
    return int(1 << (count - 1).bit_length())
