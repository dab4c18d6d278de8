"""The new tokens of one row, and what each of them sees."""

from dataclasses import dataclass
from typing import NamedTuple

from adafuse.engine.node import Node, Sequence


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
