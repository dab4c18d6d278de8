"""The token tree: a committed text per model and example, and the tokens tried after it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    import torch

    from adafuse.engine.program import Engine
    from adafuse.models.language_model import LanguageModel


class ContextFullError(Exception):
    """A token would not fit into the model's context; the text so far stands."""


@dataclass(frozen=True, slots=True)
class NextToken:
    """A model's distribution over the next token, reduced to what decoding reads.

    `top_ids` are the likeliest ids, highest first, ties to the lower id, `top_logprobs` theirs;
    `margin` is p(1) - p(2); `log_end` is log p(END). All from a float32 softmax over the ids below
    len(tokenizer). `logprobs` holds all log-probabilities, shape [vocabulary], on the device; it is
    empty once the node was released.
    """

    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]
    margin: float
    log_end: float
    logprobs: "torch.Tensor"

    def with_logprobs(self, logprobs: "torch.Tensor") -> "NextToken":
        """Return the same over another copy of the log-probabilities."""
        return replace(self, logprobs=logprobs)

    @property
    def greedy(self) -> int:
        """The likeliest id."""
        return self.top_ids[0]


class Node:
    """A token under its parent. `next` is None until an engine has evaluated the node.

    `depth` is the position in the model's sequence (prompt included, from 0), `logprob` the
    token's log-probability after its parent (None while unknown), `slot` where the tree engine
    keeps its keys and values.
    """

    __slots__ = ("children", "depth", "logprob", "next", "parent", "sequence", "slot", "token")

    def __init__(self, sequence: "TokenSequence", parent: Optional["Node"], token: int) -> None:
        self.sequence = sequence
        self.parent = parent
        self.token = token
        self.depth: int = parent.depth + 1 if parent else len(sequence.ids) - 1
        self.children: dict[int, Node] = {}
        self.logprob: float | None = None
        self.next: NextToken | None = None
        self.slot: int | None = None

    def release(self) -> None:
        """Give up the row of log-probabilities; a child that needs it has the token run again."""
        if self.next is not None and not self.released:
            self.next = self.next.with_logprobs(self.next.logprobs.new_empty(0))

    @property
    def released(self) -> bool:
        """Whether the row of log-probabilities was given up."""
        return self.next is not None and not len(self.next.logprobs)

    @property
    def engine(self) -> "Engine":
        """The engine that fills in this node."""
        return self.sequence.engine

    def child(self, token: int) -> "Node":
        """Return the node of `token` under this one, making it if it is new.

        Raises:
            ContextFullError: the model has no position left for it.
        """
        if token not in self.children:
            if self.depth + 1 >= self.sequence.engine.context:
                raise ContextFullError(self.sequence.model.name)
            node = Node(self.sequence, self, token)
            if self.next is not None and token in self.next.top_ids:
                node.logprob = self.next.top_logprobs[self.next.top_ids.index(token)]
            self.children[token] = node
        return self.children[token]

    def chain(self, ids: tuple[int, ...]) -> list["Node"]:
        """Return the nodes of a chain of tokens under this one."""
        nodes = []
        node = self
        for token in ids:
            node = node.child(token)
            nodes.append(node)
        return nodes

    def path(self) -> list["Node"]:
        """Return the nodes from below the root down to this one (none for the root itself)."""
        nodes = list(self._upwards())
        nodes.reverse()
        return nodes

    def all_ids(self) -> list[int]:
        """Return every id up to and including this token, prompt first."""
        return self.sequence.ids + [node.token for node in self.path()]

    def last_ids(self, count: int) -> list[int]:
        """Return up to `count` ids that end with this token, prompt ids included."""
        return (self.sequence.ids[-count:] + [node.token for node in self.path()])[-count:]

    def _upwards(self) -> Iterator["Node"]:
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class TokenSequence:
    """One example in one model: its committed ids, and the root of the tree that follows them.

    The root stands for the last committed token; `row` and `cached` (how many committed ids have
    keys and values) belong to the tree engine.
    """

    def __init__(self, engine: "Engine", prompt_ids: list[int], row: int = 0) -> None:
        self.engine = engine
        self.prompt_length = len(prompt_ids)
        self.ids = list(prompt_ids)
        self.root = Node(self, None, prompt_ids[-1])
        self.row = row
        self.cached = 0
        self.used = len(prompt_ids)
        self.forwards = 0

    @property
    def model(self) -> "LanguageModel":
        """The model that this sequence belongs to."""
        return self.engine.model

    @property
    def generated(self) -> int:
        """How many ids were committed behind the prompt."""
        return len(self.ids) - self.prompt_length

    def forget(self, but: Node | None = None) -> None:
        """Release all nodes: they refer to one another, and would hold their rows for a while."""
        nodes = [self.root]
        while nodes:
            node = nodes.pop()
            nodes.extend(node.children.values())
            if node is not but:
                node.release()

    def commit(self, node: Node) -> list[Node]:
        """Make the path to `node` part of the committed ids and `node` the new root.

        Returns the path; every other node is forgotten.
        """
        path = node.path()
        self.ids.extend(step.token for step in path)
        self.forget(but=node)
        node.parent = None
        node.children = {}
        if node.next is not None:  # a copy, or the vectors of the whole forward would live on
            node.next = node.next.with_logprobs(node.next.logprobs.clone())
        self.root = node
        return path


def to_run(nodes: Iterable[Node]) -> list[Node]:
    """Return those of `nodes` that are not evaluated, and released parents that they need."""
    missing = [node for node in nodes if node.next is None]
    parents = (n.parent for n in missing if n.logprob is None and n.parent and n.parent.released)
    return list(dict.fromkeys([*parents, *missing]))
