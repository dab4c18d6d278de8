"""What one forward of the tree engine is given: new tokens by row, grouped, as tensors."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import NamedTuple

import torch

from adafuse.engine.node import Node, TokenSequence


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
