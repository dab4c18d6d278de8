"""One forward of a network: new tokens by row, slots for keys and values, attention masks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from adafuse.engine.node import Node, TokenSequence
from adafuse.models.language_model import LanguageModel

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


class Token(NamedTuple):
    """One token to feed: it sees the slots below `limit` and those in `ancestors`.

    Ancestors lie on the path up from the token, the nearest last, one position apart.
    """

    id: int
    position: int
    slot: int
    limit: int
    ancestors: tuple[int, ...] = ()
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class Feed:
    """The new tokens of one row: committed ones without keys and values, then tree nodes."""

    sequence: TokenSequence
    tokens: list[Token]

    @classmethod
    def of(cls, sequence: TokenSequence, nodes: list[Node]) -> "Feed":
        """Plan the tokens that make `nodes` known, and give tree nodes their slots."""
        committed = len(sequence.ids)
        tokens = [
            Token(sequence.ids[place], place, place, place + 1)
            for place in range(sequence.cached, committed)
        ]
        sequence.cached = committed
        for node in sorted(nodes, key=lambda node: node.depth):
            if node is sequence.root:  # among the tokens unless it is run again
                last = committed - 1
                tokens[-1:] = [Token(node.token, last, last, committed, (), node)]
            else:
                tokens.append(_tree_token(node, committed))
        return cls(sequence, tokens)

    @property
    def slots(self) -> int:
        """How many slots the row needs, one for padding included."""
        return max(self.sequence.used, len(self.sequence.ids)) + 1

    def part(self, start: int, end: int) -> "Feed":
        """Return some of the tokens, to be fed on their own."""
        return Feed(self.sequence, self.tokens[start:end])


def _tree_token(node: Node, committed: int) -> Token:
    if node.slot is None:
        node.slot = node.sequence.used
        node.sequence.used += 1
    ancestors = [step.slot for step in node.path() if step.slot is not None]
    return Token(node.token, node.depth, node.slot, committed, tuple(ancestors), node)


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a forward: rows R, new tokens per row Q, slots that are read V."""

    rows: int
    tokens: int
    view: int


@dataclass(frozen=True, slots=True)
class Inputs:
    """A batch on the device of a model, all int64, padded on the left and after the last row.

    `fixed` holds ids, positions (depths in the tree), slots and limits, each [R, Q], and the rows
    of the cache, [R], in one tensor, so that one copy brings them all; the rows are all of the
    cache in order if `whole`. A token sees the slots below its limit; `ancestors` are slots that it
    sees beyond that: [4, n], row, column, slot and position. `reads` are the logits that are
    wanted: [2, nodes], row and column.
    """

    shape: Shape
    whole: bool
    fixed: torch.Tensor
    ancestors: torch.Tensor
    reads: torch.Tensor

    @property
    def fields(self) -> tuple[torch.Tensor, ...]:
        """Ids, positions, slots and limits: each [R, Q]."""
        shape = self.shape
        return self.fixed[: -shape.rows].view(4, shape.rows, shape.tokens).unbind()

    @property
    def rows(self) -> torch.Tensor:
        """Rows of the cache: [R]."""
        return self.fixed[-self.shape.rows :]


class Batch:
    """Feeds of several rows that go through one forward.

    `shape` is the smallest that holds them; `nodes` are filled in from the logits of the last
    `keep` columns. A batch that `follows` may need what the one before it filled in.
    """

    def __init__(self, feeds: Iterable[Feed], *, follows: bool = False) -> None:
        self.follows = follows
        self.feeds = sorted(feeds, key=lambda feed: feed.sequence.row)
        tokens = [token for feed in self.feeds for token in feed.tokens]
        width = max(len(feed.tokens) for feed in self.feeds)
        view = max(max(token.slot + 1, token.limit) for token in tokens)
        self.shape = Shape(len(self.feeds), width, view)
        self.nodes: list[Node] = [token.node for token in tokens if token.node is not None]
        self.keep = max(1, *(len(feed.tokens) - _leading_unread(feed) for feed in self.feeds))

    def inputs(self, shape: Shape, cache_rows: int, scratch: int, device: torch.device) -> Inputs:
        """Return the tensors, padded to `shape`.

        What pads is written to the slot `scratch`, which nothing sees, and sees slot 0, for a
        softmax over nothing is not a number. Rows that pad stand for the first row.
        """
        whole = shape.rows == cache_rows
        rows = [feed.sequence.row for feed in self.feeds]
        places = rows if whole else list(range(len(rows)))
        padded = rows + rows[:1] * (shape.rows - len(rows))
        blanks = {"id": 0, "position": 0, "slot": scratch, "limit": 1}
        fields = [self._field(attrgetter(n), blanks[n], shape, places) for n in blanks]
        fixed = [*chain(*fields), *(range(cache_rows) if whole else padded)]
        ancestors, reads = self._ancestors(shape, places), self._reads(shape, places)
        flat = torch.tensor([*fixed, *chain(*ancestors), *chain(*reads)])
        if device.type == "cuda":
            flat = flat.pin_memory()
        sizes = [len(fixed), 4 * len(ancestors[0]), 2 * len(reads[0])]
        parts = torch.split(flat.to(device, non_blocking=True), sizes)
        return Inputs(shape, whole, parts[0], parts[1].view(4, -1), parts[2].view(2, -1))

    def _field(
        self, read: Callable[[Token], int], blank: int, shape: Shape, places: Sequence[int]
    ) -> list[int]:
        rows = [[blank] * shape.tokens] * shape.rows
        for place, feed in zip(places, self.feeds, strict=True):
            values = [read(token) for token in feed.tokens]
            rows[place] = [blank] * (shape.tokens - len(values)) + values
        return list(chain.from_iterable(rows))

    def _ancestors(self, shape: Shape, places: Sequence[int]) -> list[list[int]]:
        rows, columns, slots, positions = list[int](), list[int](), list[int](), list[int]()
        for place, feed in zip(places, self.feeds, strict=True):
            for column, token in enumerate(feed.tokens, shape.tokens - len(feed.tokens)):
                count = len(token.ancestors)
                rows += [place] * count
                columns += [column] * count
                slots += token.ancestors
                positions += range(token.position + 1 - count, token.position + 1)
        return [rows, columns, slots, positions]

    def _reads(self, shape: Shape, places: Sequence[int]) -> list[list[int]]:
        """Return the places of the nodes' logits, columns counted from the right: below 0."""
        found = [
            (place, column)
            for place, feed in zip(places, self.feeds, strict=True)
            for column, token in enumerate(feed.tokens, -len(feed.tokens))
            if token.node is not None
        ]
        return [list(column) for column in zip(*found, strict=True)] or [[], []]


def _leading_unread(feed: Feed) -> int:
    for count, token in enumerate(feed.tokens):
        if token.node is not None:
            return count
    return len(feed.tokens)


PIECE = 512
"""A row feeds at most this many tokens in one forward; longer prompts go in pieces."""
TOKEN_BUDGET = 8192
"""At most this many tokens, padding included, go through one forward."""
FORWARD_COST = {"cpu": 32, "cuda": 256}
"""What a forward costs besides its tokens, in tokens: reading the weights takes so long."""


def batches(feeds: Sequence[Feed], device_type: str) -> Iterator[Batch]:
    """Group feeds into forwards; pieces of a long row follow one another."""
    for group in _groups(feeds, FORWARD_COST.get(device_type, 256)):
        width = min(len(group[0].tokens), PIECE)
        rows = max(1, TOKEN_BUDGET // width)
        for start in range(0, len(group), rows):
            yield from _in_pieces(group[start : start + rows])


def _groups(feeds: Sequence[Feed], cost: int) -> list[list[Feed]]:
    """Split feeds by length so that forwards and padded tokens together cost least."""
    longest_first = sorted(feeds, key=lambda feed: -len(feed.tokens))
    runs = [list(run) for _, run in groupby(longest_first, key=lambda feed: len(feed.tokens))]
    plans: list[tuple[int, list[list[Feed]]]] = [(0, [])]
    for end in range(1, len(runs) + 1):
        choices = []
        for start in range(end):
            before, groups = plans[start]
            group = [feed for run in runs[start:end] for feed in run]
            choices.append((before + cost + len(group) * len(group[0].tokens), [*groups, group]))
        plans.append(min(choices, key=lambda plan: plan[0]))
    return plans[-1][1]


def _in_pieces(feeds: Sequence[Feed]) -> Iterator[Batch]:
    longest = len(feeds[0].tokens)
    for start in range(0, longest, PIECE):
        pieces = [f.part(start, start + PIECE) for f in feeds if len(f.tokens) > start]
        yield Batch(pieces, follows=start > 0)


FULL, SLIDING = "full_attention", "sliding_attention"

Mask = torch.Tensor | dict[str, torch.Tensor]


class TreeMasks:
    """Builds the mask of a batch for one model.

    Layers that attend to a sliding window see only tokens less than `window` positions back. An
    architecture with both kinds of layers takes one mask per kind, others take a single one.

    Raises:
        ValueError: the model has layers of another kind (chunked or recurrent ones).
    """

    def __init__(self, model: LanguageModel) -> None:
        config = model.network.config.get_text_config()
        window = getattr(config, "sliding_window", None)
        default = [FULL if window is None else SLIDING]
        self._mixed = bool(getattr(config, "layer_types", None))
        self._kinds = sorted(set(getattr(config, "layer_types", None) or default))
        self._window = int(window or 0)
        self._additive = model.network.config._attn_implementation != "sdpa"
        self._dtype = model.network.dtype
        if not {FULL, SLIDING}.issuperset(self._kinds):
            raise ValueError(f"layers of type {sorted({*self._kinds} - {FULL, SLIDING})}")

    def __call__(self, inputs: Inputs) -> Mask:
        """Return which slots each token sees: bool [R, 1, Q, V], or additive for eager."""
        seen = _seen(inputs)
        masks = {kind: self._formed(self._within(seen, inputs, kind)) for kind in self._kinds}
        return masks if self._mixed and len(masks) > 1 else next(iter(masks.values()))

    def _within(self, seen: torch.Tensor, inputs: Inputs, kind: str) -> torch.Tensor:
        if kind == FULL or inputs.shape.view <= self._window:
            return seen
        _, positions, _, _ = inputs.fields
        back = positions[:, :, None] - _slot_positions(inputs)[:, None]
        return seen & (back < self._window)

    def _formed(self, seen: torch.Tensor) -> torch.Tensor:
        mask = seen[:, None]
        if not self._additive:
            return mask
        zeros = torch.zeros(mask.shape, dtype=self._dtype, device=mask.device)
        return zeros.masked_fill_(~mask, torch.finfo(self._dtype).min)


def _seen(inputs: Inputs) -> torch.Tensor:
    """Return which slots each token sees: bool [R, Q, V]."""
    *_, limits = inputs.fields
    seen = torch.arange(inputs.shape.view, device=limits.device) < limits[:, :, None]
    if inputs.ancestors.shape[1]:
        rows, columns, slots, _ = inputs.ancestors
        seen[rows, columns, slots] = True
    return seen


def _slot_positions(inputs: Inputs) -> torch.Tensor:
    """Return the position of the token in each slot, for those that are seen: [R, V]."""
    shape = inputs.shape
    positions = torch.arange(shape.view, device=inputs.fixed.device).repeat(shape.rows, 1)
    rows, _, slots, depths = inputs.ancestors
    positions[rows, slots] = depths
    return positions


class Forward:
    """Runs the network of a model on batches, against the keys and values in its cache."""

    def __init__(self, model: LanguageModel, cache: SlotCache) -> None:
        self.model = model
        self.cache = cache
        self.masks = TreeMasks(model)
        self._keeps = "logits_to_keep" in signature(model.network.forward).parameters

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Return the logits of the nodes of a batch: [nodes, rows of the output layer]."""
        inputs = self.inputs(batch, batch.shape)
        logits = self.network(inputs, self.masks(inputs), batch.keep)
        return logits[inputs.reads[0], inputs.reads[1]]

    def inputs(self, batch: Batch, shape: Shape) -> Inputs:
        """Return the tensors of a batch, padded to `shape`."""
        return batch.inputs(shape, self.cache.rows, self.cache.scratch, self.model.device)

    def network(self, inputs: Inputs, mask: Mask, keep: int) -> torch.Tensor:
        """Return the logits of the last `keep` columns at least: [R, keep, output rows]."""
        ids, positions, slots, _ = inputs.fields
        self.cache.step = Step(inputs.rows, slots, inputs.shape.view, inputs.whole)
        output = self.model.network(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
            **({"logits_to_keep": keep} if self._keeps else {}),
        )
        logits: torch.Tensor = output.logits
        return logits
