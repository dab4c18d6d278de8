"""What one forward of the tree engine is given: new tokens per row, and what each of them sees."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from adafuse.engine.node import Node, Sequence

PIECE = 1024
"""A row feeds at most this many tokens in one forward; longer prompts go in pieces."""
TOKEN_BUDGET = 8192
"""At most this many tokens, padding included, go through one forward that feeds prompts."""
SHORT = 32
"""Rows with up to this many new tokens share one forward, whatever they pad."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token to feed: it sees the slots below `limit` and those in `ancestors`."""

    id: int
    position: int
    slot: int
    limit: int
    ancestors: tuple[int, ...] = ()
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class Feed:
    """The new tokens of one row: committed ones without keys and values, then tree nodes."""

    sequence: Sequence
    tokens: list[Token]

    @classmethod
    def of(cls, sequence: Sequence, nodes: list[Node]) -> "Feed":
        """Plan the tokens that make `nodes` known, and give tree nodes their slots."""
        committed = len(sequence.ids)
        tokens = [
            Token(sequence.ids[place], place, place, place + 1)
            for place in range(sequence.cached, committed)
        ]
        sequence.cached = committed
        for node in sorted(nodes, key=lambda node: node.depth):
            if node is sequence.root:
                last = tokens[-1]
                tokens[-1] = Token(last.id, last.position, last.slot, last.limit, (), node)
            else:
                tokens.append(_tree_token(node, committed))
        return cls(sequence, tokens)

    @property
    def slots(self) -> int:
        """How many slots the row needs, one for padding included."""
        return max(self.sequence.used, len(self.sequence.ids)) + 1

    def pieces(self) -> list["Feed"]:
        """Cut a long feed into pieces that are fed one after the other."""
        cuts = range(0, len(self.tokens), PIECE)
        return [Feed(self.sequence, self.tokens[cut : cut + PIECE]) for cut in cuts]


def _tree_token(node: Node, committed: int) -> Token:
    node.slot = node.sequence.used
    node.sequence.used += 1
    ancestors = [step.slot for step in node.path() if step.slot is not None]
    return Token(node.token, node.depth, node.slot, committed, tuple(ancestors), node)


@dataclass(frozen=True)
class Batch:
    """Feeds of several rows, padded on the left, sorted by row.

    ids, positions, slots: int64 [R, Q]; rows: int64 [R]. `view` slots are read; the logits of the
    last `keep` columns are asked for, and `reads` are the places (row, column among those kept) of
    `nodes` in them. Padding writes to slot `view`, which nothing sees.
    """

    feeds: list[Feed]
    width: int = field(init=False)
    view: int = field(init=False)
    keep: int = field(init=False)

    def __post_init__(self) -> None:
        self.feeds.sort(key=lambda feed: feed.sequence.row)
        width = max(len(feed.tokens) for feed in self.feeds)
        view = max(token.slot for feed in self.feeds for token in feed.tokens) + 1
        view = max(view, *(token.limit for feed in self.feeds for token in feed.tokens))
        unread = [_leading_unread(feed) + width - len(feed.tokens) for feed in self.feeds]
        object.__setattr__(self, "width", width)
        object.__setattr__(self, "view", view)
        object.__setattr__(self, "keep", max(1, width - min(unread)))

    @property
    def rows(self) -> torch.Tensor:
        """Rows of the cache."""
        return torch.tensor([feed.sequence.row for feed in self.feeds])

    @property
    def ids(self) -> torch.Tensor:
        """Token ids."""
        return self._padded([[token.id for token in feed.tokens] for feed in self.feeds], 0)

    @property
    def positions(self) -> torch.Tensor:
        """Depths in the tree."""
        return self._padded([[token.position for token in feed.tokens] for feed in self.feeds], 0)

    @property
    def slots(self) -> torch.Tensor:
        """Where keys and values go."""
        slots = [[token.slot for token in feed.tokens] for feed in self.feeds]
        return self._padded(slots, self.view)

    @property
    def nodes(self) -> list[Node]:
        """The nodes to fill in, in the order of `reads`."""
        return [node for node, _ in self._reads()]

    @property
    def reads(self) -> list[tuple[int, int]]:
        """Where the logits of `nodes` are."""
        return [place for _, place in self._reads()]

    def mask(self, device: torch.device) -> torch.Tensor:
        """Return which slots each token sees: bool [R, Q, view]."""
        limits = [[token.limit for token in feed.tokens] for feed in self.feeds]
        # A padding token sees slot 0, for a softmax over nothing is not a number.
        limit = self._padded(limits, 1).to(device)
        seen = torch.arange(self.view, device=device) < limit[:, :, None]
        places = [
            (row, column + self.width - len(feed.tokens), slot)
            for row, feed in enumerate(self.feeds)
            for column, token in enumerate(feed.tokens)
            for slot in token.ancestors
        ]
        if places:
            rows, columns, slots = torch.tensor(places, device=device).T
            seen[rows, columns, slots] = True
        return seen

    def slot_positions(self) -> torch.Tensor:
        """Return the position of the token in each slot, for those that are seen: [R, view]."""
        positions = torch.arange(self.view).repeat(len(self.feeds), 1)
        for row, feed in enumerate(self.feeds):
            for token in feed.tokens:
                # Ancestors lie on the path up from the token, one position apart.
                for back, slot in enumerate(reversed(token.ancestors)):
                    positions[row, slot] = token.position - back
        return positions

    def _padded(self, rows: list[list[int]], value: int) -> torch.Tensor:
        return torch.tensor([[value] * (self.width - len(row)) + row for row in rows])

    def _reads(self) -> Iterator[tuple[Node, tuple[int, int]]]:
        for row, feed in enumerate(self.feeds):
            offset = self.keep - len(feed.tokens)
            for column, token in enumerate(feed.tokens):
                if token.node is not None:
                    yield token.node, (row, column + offset)


def _leading_unread(feed: Feed) -> int:
    for count, token in enumerate(feed.tokens):
        if token.node is not None:
            return count
    return len(feed.tokens)


def split(feeds: list[Feed]) -> Iterator[Batch]:
    """Group feeds into forwards: short ones together, long ones under the token budget."""
    short = [feed for feed in feeds if len(feed.tokens) <= SHORT]
    if short:
        yield Batch(short)
    rest = sorted((f for f in feeds if len(f.tokens) > SHORT), key=lambda f: len(f.tokens))
    while rest:
        longest = min(len(rest[-1].tokens), PIECE)
        group = [rest.pop() for _ in range(min(len(rest), max(1, TOKEN_BUDGET // longest)))]
        yield from _in_pieces(group)


def _in_pieces(feeds: list[Feed]) -> Iterator[Batch]:
    pieces = [feed.pieces() for feed in feeds]
    for turn in range(max(len(row) for row in pieces)):
        yield Batch([row[turn] for row in pieces if turn < len(row)])
