"""Forwards of a few tokens as CUDA graphs: without launches, a forward costs what it reads.

Every tensor of the engine has a fixed address, so that a forward of one shape can be captured once
and replayed with other values. Shapes are rounded up to a few buckets.
"""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from adafuse.engine.forward import Batch, Forward, Inputs, Mask, Shape
from adafuse.models.language_model import LanguageModel

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


def record_cuda(compute: Callable[[], torch.Tensor]) -> tuple[Replay, torch.Tensor]:
    """Capture a computation as a CUDA graph."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # libraries set themselves up outside the capture
        compute()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=_pool()):
        result = compute()
    return graph.replay, result


class Graphs:
    """A forward that replays captured steps where it can, and runs as it is elsewhere."""

    def __init__(self, forward: Forward, record: Recorder = record_cuda) -> None:
        self._forward = forward
        self._record: Recorder | None = record
        self._sighted: Counter[Shape] = Counter()
        self._steps: OrderedDict[Shape, _Step] = OrderedDict()
        self._slots = forward.cache.slots

    @property
    def recorded(self) -> int:
        """How many shapes can be replayed now."""
        return len(self._steps)

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Return the logits of the nodes of a batch: [nodes, rows of the output layer]."""
        cache = self._forward.cache
        shape = bucket(batch.shape, cache.rows, cache.slots)
        if self._record is None or shape is None:
            return self._forward(batch)
        if self._slots != cache.slots:  # the tensors have moved
            self._slots = cache.slots
            self._steps.clear()
        self._sighted[shape] += 1
        if shape not in self._steps and self._sighted[shape] < SIGHTINGS:
            return self._forward(batch)
        inputs = self._forward.inputs(batch, shape)
        step = self._step(inputs)
        if step is None:
            return self._forward(batch)
        return step.run(inputs)[inputs.reads[0], inputs.reads[1]]

    def _step(self, inputs: Inputs) -> "_Step | None":
        shape = inputs.shape
        if shape not in self._steps:
            assert self._record is not None
            try:
                self._steps[shape] = _Step(self._forward, inputs, self._record)
            except RuntimeError as error:
                self._give_up(error)
                return None
            if len(self._steps) > MOST_GRAPHS:
                self._steps.popitem(last=False)
        self._steps.move_to_end(shape)
        return self._steps[shape]

    def _give_up(self, error: RuntimeError) -> None:
        if isinstance(error, torch.OutOfMemoryError):
            raise error
        self._record = None
        self._steps.clear()
        reason = str(error).strip().split("\n")[0]
        name = self._forward.model.name
        logger.warning("%s runs without CUDA graphs, which is slower: %s", name, reason)


class _Step:
    """A forward of one shape over tensors that stay where they are."""

    def __init__(self, forward: Forward, inputs: Inputs, record: Recorder) -> None:
        self._forward = forward
        self._inputs = Inputs(
            inputs.shape, inputs.whole, inputs.fixed.clone(), inputs.ancestors, inputs.reads
        )
        self._mask = _cloned(forward.masks(inputs))
        self._replay, self._logits = record(self._compute)

    def run(self, inputs: Inputs) -> torch.Tensor:
        """Return the logits of all tokens, valid until the next run: [R, Q, output rows]."""
        self._inputs.fixed.copy_(inputs.fixed)
        _copy(self._forward.masks(inputs), self._mask)
        self._replay()
        return self._logits

    def _compute(self) -> torch.Tensor:
        return self._forward.network(self._inputs, self._mask, self._inputs.shape.tokens)


def capturable(model: LanguageModel) -> bool:
    """Return whether a model lies on one CUDA device: a graph does not reach beyond."""
    places = {parameter.device for parameter in model.network.parameters()}
    return len(places) == 1 and places.pop().type == "cuda"


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


def _cloned(mask: Mask) -> Mask:
    if isinstance(mask, torch.Tensor):
        return mask.clone()
    return {kind: each.clone() for kind, each in mask.items()}


def _copy(source: Mask, target: Mask) -> None:
    if isinstance(source, torch.Tensor):
        assert isinstance(target, torch.Tensor)
        target.copy_(source)
        return
    assert isinstance(target, dict)
    for kind, each in source.items():
        target[kind].copy_(each)


_pools: dict[int, Any] = {}


def _pool() -> Any:
    """Return the memory that all graphs of a device share: they run one after the other."""
    device = torch.cuda.current_device()
    if device not in _pools:
        _pools[device] = torch.cuda.graph_pool_handle()
    return _pools[device]
