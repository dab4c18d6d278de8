"""One forward of a network: new tokens by row, slots for keys and values, masks, what is read."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from inspect import signature
from itertools import chain, groupby
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad
from transformers.cache_utils import Cache, CacheLayerMixin

from adafuse.engine.node import NextToken, Node
from adafuse.models.language_model import LoadedModel
from adafuse.models.positions import CHUNKED, WINDOWS, default_kind


class Token(NamedTuple):
    """One token to feed: it sees the slots below `limit` and those in `ancestors`.

    Ancestors lie on the path down to the token, itself the last, one position apart.
    """

    id: int
    position: int
    slot: int
    limit: int
    ancestors: tuple[int, ...] = ()
    node: Node | None = None


class Feed(NamedTuple):
    """The new tokens of one row of the cache."""

    row: int
    tokens: list[Token]


class Shape(NamedTuple):
    """The size of a forward: rows R, new tokens per row Q, slots that are read V."""

    rows: int
    tokens: int
    view: int


class ForwardBatch:
    """Feeds of several rows that go through one forward.

    `shape` is the smallest that holds them; `nodes` are filled in from the logits of the last
    `keep` columns. A batch that `follows` may need what the one before it filled in.
    """

    def __init__(self, feeds: Iterable[Feed], *, follows: bool = False) -> None:
        self.follows = follows
        self.feeds = sorted(feeds, key=lambda feed: feed.row)
        tokens = [token for feed in self.feeds for token in feed.tokens]
        width = max(len(feed.tokens) for feed in self.feeds)
        view = max(max(token.slot + 1, token.limit) for token in tokens)
        self.shape = Shape(len(self.feeds), width, view)
        self.nodes = [token.node for token in tokens if token.node is not None]
        self.keep = -min((column for _, column, _ in self.cells()), default=-1)

    def cells(self) -> Iterator[tuple[int, int, Token]]:
        """Yield the tokens of `nodes`, by number of the feed and column from the right, below 0."""
        for number, feed in enumerate(self.feeds):
            for column, token in enumerate(feed.tokens, -len(feed.tokens)):
                if token.node is not None:
                    yield number, column, token


class Inputs:
    """A batch on the device of a model, all int64, padded to `shape` on the left and below.

    `ids`, `positions` (depths in the tree), `slots` and `limits` are [R, Q], `rows` of the cache
    [R] (`whole`: all of them, in order); all are views of `fixed`, so that one copy replaces them.
    A token sees the slots below its limit and its `ancestors`: [4, n], row, column, slot, and how
    many positions back. `reads` are the logits that are needed: [2, nodes], row and column.

    Padding is written to the slot `scratch`, which no token sees. It sees slot 0 itself, because a
    softmax over no slot is not a number. Padding rows are read from the cache row of the first one.
    """

    def __init__(
        self, batch: ForwardBatch, shape: Shape, cache_rows: int, scratch: int, device: torch.device
    ) -> None:
        self.shape = shape
        self.whole = shape.rows == cache_rows
        rows = [feed.row for feed in batch.feeds]
        lines = rows if self.whole else list(range(len(rows)))
        table = [[Token(0, 0, scratch, 1)] * shape.tokens] * shape.rows
        for line, feed in zip(lines, batch.feeds, strict=True):
            table[line] = table[line][len(feed.tokens) :] + feed.tokens
        fields = list(zip(*chain(*table), strict=True))[:4]
        padded = range(cache_rows) if self.whole else rows + rows[:1] * (shape.rows - len(rows))
        sees = [
            (lines[number], column, slot, back)
            for number, column, token in batch.cells()
            for back, slot in enumerate(reversed(token.ancestors))
        ]
        read = [(lines[number], column) for number, column, _ in batch.cells()]
        lists = [*chain(*fields), *padded], _by_column(sees), _by_column(read)
        flat = torch.tensor(list(chain(*lists)))
        if device.type == "cuda":
            flat = flat.pin_memory()
        sizes = [len(part) for part in lists]
        self.fixed, ancestors, reads = torch.split(flat.to(device, non_blocking=True), sizes)
        self.ancestors, self.reads = ancestors.view(4, -1), reads.view(2, -1)
        cells = self.fixed[: -shape.rows].view(4, shape.rows, shape.tokens)
        self.ids, self.positions, self.slots, self.limits = cells
        self.rows = self.fixed[-shape.rows :]

    def seen(self, window: int | None, *, chunks: bool = False) -> torch.Tensor:
        """Return which slots each token sees: bool [R, Q, V].

        These are at most `window` positions back, itself included, or with `chunks` those of the
        token's own chunk of `window` positions.
        """
        view = torch.arange(self.shape.view, device=self.fixed.device)
        seen: torch.Tensor = view < self.limits[:, :, None]
        rows, columns, slots, back = self.ancestors
        if window is None or (window >= self.shape.view and not chunks):
            seen[rows, columns, slots] = True
            return seen
        reach = self.positions % window + 1 if chunks else torch.full_like(self.positions, window)
        seen &= self.positions[:, :, None] - view < reach[:, :, None]
        seen[rows, columns, slots] = back < reach[rows, columns]
        return seen


def _by_column(rows: Iterable[tuple[int, ...]]) -> list[int]:
    return list(chain(*zip(*rows, strict=True)))


PIECE = 512
"""A row feeds at most this many tokens in one forward; longer prompts go in pieces."""
TOKEN_BUDGET = 8192
"""At most this many tokens, padding included, go through one forward."""
FORWARD_COST = defaultdict(lambda: 256, cpu=32)
"""What a forward costs besides its tokens, in tokens: reading the weights takes so long."""


def batches(feeds: Sequence[Feed], device_type: str) -> Iterator[ForwardBatch]:
    """Group feeds into forwards; pieces of a long row follow one another."""
    for group in _groups(feeds, FORWARD_COST[device_type]):
        rows = max(1, TOKEN_BUDGET // min(len(group[0].tokens), PIECE))
        for first in range(0, len(group), rows):
            together = group[first : first + rows]
            for start in range(0, len(together[0].tokens), PIECE):
                pieces = [Feed(f.row, f.tokens[start : start + PIECE]) for f in together]
                yield ForwardBatch([feed for feed in pieces if feed.tokens], follows=start > 0)


def _groups(feeds: Sequence[Feed], cost: int) -> list[list[Feed]]:
    """Split feeds by length, longest first, so that forwards and padded tokens cost least."""
    longest_first = sorted(feeds, key=lambda feed: -len(feed.tokens))
    runs = [list(run) for _, run in groupby(longest_first, key=lambda feed: len(feed.tokens))]
    plans: list[tuple[int, list[list[Feed]]]] = [(0, [])]
    for end in range(1, len(runs) + 1):
        choices = []
        for start, (before, groups) in enumerate(plans):
            group = list(chain(*runs[start:end]))
            choices.append((before + cost + len(group) * len(group[0].tokens), [*groups, group]))
        plans.append(min(choices, key=lambda plan: plan[0]))
    return plans[-1][1]


SLOT_STEP = 256
"""Slots are allocated in steps of this many, so that the tensors seldom move."""


class SlotLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, each of shape [rows, slots, heads, head size]."""

    def __init__(self, cache: "SlotCache") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate for the head counts, dtype and device of the first keys and values."""
        rows, slots = self._cache.rows, self._cache.slots
        self.keys, self.values = (
            states.new_zeros(rows, slots, states.shape[1], states.shape[3])
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values of shape [R, heads, Q, head size]; return what is in view."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        return self._put(self.keys, key_states), self._put(self.values, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length of what is read and its offset."""
        assert self._cache.inputs is not None
        return self._cache.inputs.shape.view, 0

    def get_seq_length(self) -> int:
        """Positions are given explicitly, so models need not count."""
        return 0

    def get_max_length(self) -> int:
        """Return the number of slots."""
        return self._cache.slots

    def _put(self, tensor: torch.Tensor | None, states: torch.Tensor) -> torch.Tensor:
        inputs = self._cache.inputs
        assert inputs is not None and tensor is not None
        rows, slots = inputs.rows.to(tensor.device), inputs.slots.to(tensor.device)
        tensor[rows[:, None], slots] = states.transpose(1, 2)
        seen = tensor[:, : inputs.shape.view]
        return (seen if inputs.whole else seen.index_select(0, rows)).transpose(1, 2)


class SlotCache(Cache):
    """All layers of one model; `inputs` of each forward must be set before it.

    `expected` is how many slots a row may come to need, as far as that is known.
    """

    def __init__(self, layers: int, rows: int, expected: int = 0) -> None:
        self.rows = rows
        self.slots = SLOT_STEP
        self.inputs: Inputs | None = None
        self._expected = expected
        self._saved: list[torch.Tensor] = []
        self._layers = [SlotLayer(self) for _ in range(layers)]
        super().__init__(layers=[*self._layers])

    def tensors(self) -> list[torch.Tensor]:
        """Return the keys and values of all layers, once a forward has allocated them."""
        pairs = ((layer.keys, layer.values) for layer in self._layers)
        return [tensor for tensor in chain(*pairs) if tensor is not None]

    def reserve(self, slots: int) -> None:
        """Make room for `slots` slots per row.

        By half again at a time, so that texts of any length are moved but a few times.
        """
        if slots <= self.slots:
            return
        half_more = self.slots + self.slots // 2
        slots = max(slots, min(half_more, self._expected or half_more))
        more = -(-slots // SLOT_STEP) * SLOT_STEP - self.slots
        self.slots += more
        wider = (0, 0, 0, 0, 0, more)
        for layer in self._layers:
            if layer.keys is not None and layer.values is not None:
                layer.keys, layer.values = pad(layer.keys, wider), pad(layer.values, wider)

    def save(self, row: int, count: int) -> None:
        """Keep a copy of the first `count` slots of a row in all layers."""
        self._saved = [tensor[row, :count].clone() for tensor in self.tensors()]

    def restore(self, row: int, count: int) -> None:
        """Write what was saved of the first `count` slots into those of a row in all layers."""
        if count:
            for tensor, saved in zip(self.tensors(), self._saved, strict=True):
                tensor[row, :count] = saved[:count]

    def move(self, moves: Sequence[tuple[int, int, int]]) -> None:
        """Copy keys and values; each move is (row, source slot, target slot)."""
        if not moves:
            return
        table = torch.tensor(moves).T
        for tensor in self.tensors():
            rows, sources, targets = table = table.to(tensor.device)
            tensor[rows, targets] = tensor[rows, sources]  # all are read before one is written

    def clear(self, row: int) -> None:
        """Forget one row in all layers, whatever non-finite values it holds."""
        for tensor in self.tensors():
            tensor[row].zero_()


Masks = dict[str, torch.Tensor]
"""By kind of layer: which slots each token sees, bool [R, 1, Q, V], or additive for eager."""


class Forward:
    """Runs the network of a model on batches, against the keys and values in its cache.

    Layers with a sliding window see only tokens less than `sliding_window` positions back, chunked
    ones those of a chunk. Layers of another kind (recurrent ones) are not run.
    """

    def __init__(self, model: LoadedModel, cache: SlotCache) -> None:
        config = model.network.config.get_text_config()
        kinds = set(getattr(config, "layer_types", None) or [default_kind(config)])
        self.model = model
        self.cache = cache
        self._windows: dict[str, int | None] = {
            kind: getattr(config, WINDOWS[kind]) if kind in WINDOWS else None for kind in kinds
        }
        self._additive = model.network.config._attn_implementation != "sdpa"
        self._keeps = "logits_to_keep" in signature(model.network.forward).parameters
        head = model.network.get_output_embeddings()  # type: ignore[no-untyped-call]
        self._head = torch.nn.Identity() if head is None else head

    def __call__(self, batch: ForwardBatch) -> torch.Tensor:
        """Return the logits of the nodes of a batch: [nodes, rows of the output layer].

        The output layer, which is large, reads the states of the nodes, not those between them.
        """
        inputs, gathered = self.inputs(batch, batch.shape), False

        def gather(_: torch.nn.Module, states: tuple[torch.Tensor]) -> torch.Tensor:
            nonlocal gathered
            gathered = True
            return states[0][*inputs.reads.to(states[0].device)][None]

        hook = self._head.register_forward_pre_hook(gather)
        try:
            logits = self.network(inputs, self.masks(inputs), batch.keep)
        finally:
            hook.remove()
        return logits[0] if gathered else logits[*inputs.reads]

    def inputs(self, batch: ForwardBatch, shape: Shape) -> Inputs:
        """Return the tensors of a batch, padded to `shape`."""
        return Inputs(batch, shape, self.cache.rows, self.cache.slots - 1, self.model.device)

    def masks(self, inputs: Inputs) -> Masks:
        """Return the masks of all kinds of layers that the model has."""
        masks = {
            kind: inputs.seen(window, chunks=kind == CHUNKED)[:, None]
            for kind, window in self._windows.items()
        }
        if not self._additive:
            return masks
        dtype = self.model.network.dtype
        least = torch.finfo(dtype).min
        return {kind: (~seen).to(dtype) * least for kind, seen in masks.items()}

    def network(self, inputs: Inputs, masks: Masks, keep: int) -> torch.Tensor:
        """Return the logits of the last `keep` columns at least: [R, keep, output rows]."""
        self.cache.inputs = inputs
        output = self.model.network(
            input_ids=inputs.ids,
            position_ids=inputs.positions,
            # An architecture with both kinds of layers takes both masks, others take one.
            attention_mask=masks if len(masks) > 1 else next(iter(masks.values())),
            past_key_values=self.cache,
            use_cache=True,
            **({"logits_to_keep": keep} if self._keeps else {}),
        )
        logits: torch.Tensor = output.logits
        return logits


def read_logits(
    model: LoadedModel, top: int, nodes: Sequence[Node], logits: torch.Tensor
) -> Callable[[], None]:
    """Begin to fill in `next` of nodes, and `logprob` where that is unknown; the call waits for it.

    `logits` has shape [nodes, rows of the output layer]. They are reduced on the device, and one
    small tensor goes to the host: own log-probability, margin, log p(END), the `top` (at least 2)
    likeliest ids, exact in float64, and their log-probabilities.
    """
    logits = logits[:, : model.vocabulary].float()
    if model.unused_ids:
        logits[:, list(model.unused_ids)] = -math.inf
    vectors = logits.log_softmax(dim=-1)
    size = vectors.shape[1]
    ids, logprobs = largest(vectors, min(top, size))
    first, second = logprobs[:, :2].exp().unbind(dim=1)
    end = sorted(index for index in model.end_ids if index < size)
    log_end = vectors[:, end].logsumexp(dim=-1)
    numbers = torch.stack([_own_logprobs(nodes, vectors), first - second, log_end], dim=1)
    packed = torch.cat([numbers.double(), ids.double(), logprobs.double()], dim=1)
    return partial(_fill_in, nodes, vectors, packed)


def _own_logprobs(nodes: Sequence[Node], vectors: torch.Tensor) -> torch.Tensor:
    """Return log p(token | parent) per node, from the parent's vector wherever that is."""
    own = vectors.new_zeros(len(nodes))
    rows = {node: index for index, node in enumerate(nodes)}
    inside: list[tuple[int, int, int]] = []
    outside: dict[int, torch.Tensor] = {}
    for index, node in enumerate(nodes):
        if node.logprob is not None or node.parent is None:
            continue
        if node.parent in rows:
            inside.append((index, rows[node.parent], node.token))
        else:
            assert node.parent.next is not None, "asked for before its parent"
            outside[index] = node.parent.next.logprobs[node.token]
    if inside:
        indices, parents, tokens = zip(*inside, strict=True)
        own[list(indices)] = vectors[parents, tokens]
    if outside:
        own[list(outside)] = torch.stack(list(outside.values()))
    return own


def _fill_in(nodes: Sequence[Node], vectors: torch.Tensor, numbers: torch.Tensor) -> None:
    for node, vector, row in zip(nodes, vectors, numbers.tolist(), strict=True):
        own, margin, log_end, *top = row
        if node.logprob is None and node.parent is not None:
            node.logprob = own
        ids = tuple(map(int, top[: len(top) // 2]))
        node.next = NextToken(ids, tuple(top[len(ids) :]), margin, log_end, vector)


BLOCK = 256
"""Entries of a row of which `largest` asks for the maximum first."""


def largest(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices and values of the `count` largest entries per row.

    Ties go to the lower index: torch.topk leaves their order open, and they are common in 16-bit
    logits. On a CPU, where a pass over a whole vocabulary takes long, only the `count` blocks of
    the largest maxima are looked at. None of the others can have one of the entries: each of these
    blocks has one before it, larger or as large with a lower index.
    """
    full = values.shape[1] - values.shape[1] % BLOCK
    if values.device.type != "cpu" or full < 4 * count * BLOCK:
        return _one_by_one(values, count)
    blocks = values[:, :full].view(len(values), -1, BLOCK).amax(dim=-1)
    chosen = _one_by_one(blocks, count)[0].sort(dim=1).values
    inside = (chosen[:, :, None] * BLOCK + torch.arange(BLOCK)).flatten(1)
    rest = torch.arange(full, values.shape[1]).expand(len(values), -1)
    indices = torch.cat([inside, rest], dim=1)
    order, best = _one_by_one(values.gather(1, indices), count)
    return indices.gather(1, order), best


def _one_by_one(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what `largest` does with argmax, which is documented to return the first."""
    rest = values.clamp(min=torch.finfo(values.dtype).min)  # -inf is what was taken already
    indices = []
    for _ in range(count):
        indices.append(rest.argmax(dim=-1, keepdim=True))
        rest.scatter_(1, indices[-1], float("-inf"))
    chosen = torch.cat(indices, dim=1)
    return chosen, values.gather(1, chosen)
