"""Keys and values in fixed slots: a transformers cache that the tree engine writes where it wants.

Row = one sequence, slot = one token. Committed token i lies in slot i; the tokens of the tree lie
behind them in any order, which position ids and the attention mask make good.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

SLOT_STEP = 256
"""Slots are allocated in steps of this many, so that the tensors seldom move."""


@dataclass
class Step:
    """Where the forward under way writes and reads: rows [R], slots [R, Q], `view` slots read.

    If the rows are `whole`, all of them in order, nothing is copied to be read.
    """

    rows: torch.Tensor
    slots: torch.Tensor
    view: int
    whole: bool


class SlotLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, each of shape [rows, slots, heads, head size]."""

    def __init__(self, cache: "SlotCache") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache = cache
        self._saved: tuple[torch.Tensor, torch.Tensor] | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate for the head counts, dtype and device of the first keys and values."""
        self.keys, self.values = self._zeros(key_states), self._zeros(value_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values of shape [R, heads, Q, head size]; return what is in view."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        step = self._cache.step
        assert step is not None and self.keys is not None and self.values is not None
        return self._put(self.keys, key_states, step), self._put(self.values, value_states, step)

    def move(self, rows: torch.Tensor, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy slots within rows; all sources are read before a target is written."""
        for tensor in (self.keys, self.values):
            assert tensor is not None
            at = tensor.device
            tensor[rows.to(at), targets.to(at)] = tensor[rows.to(at), sources.to(at)]

    def save(self, row: int, count: int) -> None:
        """Keep a copy of the first `count` slots of a row."""
        assert self.keys is not None and self.values is not None
        self._saved = self.keys[row, :count].clone(), self.values[row, :count].clone()

    def restore(self, row: int) -> None:
        """Write what was saved into the first slots of a row."""
        assert self.keys is not None and self.values is not None and self._saved is not None
        for tensor, saved in zip((self.keys, self.values), self._saved, strict=True):
            tensor[row, : len(saved)] = saved

    def grow(self) -> None:
        """Take the size of the cache, keeping what is there."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self._enlarged(self.keys), self._enlarged(self.values)

    def clear(self, row: int) -> None:
        """Forget one row, whatever non-finite values it holds."""
        for tensor in (self.keys, self.values):
            if tensor is not None:
                tensor[row].zero_()

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length of what is read and its offset."""
        assert self._cache.step is not None
        return self._cache.step.view, 0

    def get_seq_length(self) -> int:
        """Positions are given explicitly, so models need not count."""
        return 0

    def get_max_length(self) -> int:
        """Return the number of slots."""
        return self._cache.slots

    def _put(self, tensor: torch.Tensor, states: torch.Tensor, step: Step) -> torch.Tensor:
        rows, slots = step.rows.to(tensor.device), step.slots.to(tensor.device)
        tensor[rows[:, None], slots] = states.transpose(1, 2)
        seen = tensor[:, : step.view]
        return (seen if step.whole else seen.index_select(0, rows)).transpose(1, 2)

    def _zeros(self, states: torch.Tensor) -> torch.Tensor:
        _, heads, _, size = states.shape
        return states.new_zeros(self._cache.rows, self._cache.slots, heads, size)

    def _enlarged(self, tensor: torch.Tensor) -> torch.Tensor:
        _, _, heads, size = tensor.shape
        larger = tensor.new_zeros(self._cache.rows, self._cache.slots, heads, size)
        larger[: tensor.shape[0], : tensor.shape[1]] = tensor
        return larger


class SlotCache(Cache):
    """All layers of one model; `step` must be set before each forward.

    `expected` is how many slots a row may come to need, as far as that is known.
    """

    def __init__(self, layers: int, rows: int, expected: int = 0) -> None:
        self.rows = rows
        self._expected = expected
        self.slots = SLOT_STEP
        self.step: Step | None = None
        self._slot_layers = [SlotLayer(self) for _ in range(layers)]
        super().__init__(layers=[*self._slot_layers])

    @property
    def scratch(self) -> int:
        """The last slot, which padding is written to."""
        return self.slots - 1

    def reserve(self, slots: int) -> None:
        """Make room for `slots` slots per row, the last one included.

        By half again at a time, so that texts of any length are moved but a few times.
        """
        if slots > self.slots:
            wanted = self.slots + self.slots // 2
            wanted = max(slots, min(wanted, self._expected or wanted))
            self.slots = -(-wanted // SLOT_STEP) * SLOT_STEP
            for layer in self._slot_layers:
                layer.grow()

    def save(self, row: int, count: int) -> None:
        """Keep a copy of the first `count` slots of a row in all layers."""
        for layer in self._slot_layers:
            layer.save(row, count)

    def restore(self, row: int) -> None:
        """Write what was saved into the first slots of a row in all layers."""
        for layer in self._slot_layers:
            layer.restore(row)

    def move(self, moves: list[tuple[int, int, int]]) -> None:
        """Copy keys and values; each move is (row, source slot, target slot)."""
        rows, sources, targets = torch.tensor(moves).T
        for layer in self._slot_layers:
            layer.move(rows, sources, targets)

    def clear(self, row: int) -> None:
        """Forget one row in all layers."""
        for layer in self._slot_layers:
            layer.clear(row)
