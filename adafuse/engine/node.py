"""The token tree of an example in one model, and the coroutines that ask for its nodes."""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Optional, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import torch

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


T = TypeVar("T")


class Evaluator(Protocol):
    """Whatever fills in requests of one kind, those of many examples at a time."""

    def evaluate(self, requests: Iterable[Any], /) -> None:
        """Fill in all requests."""
        ...


@runtime_checkable
class Starter(Evaluator, Protocol):
    """An evaluator that runs on a device, which need not be waited for at once."""

    @property
    def device(self) -> Hashable:
        """Those on the same device take turns."""
        ...

    def start(self, requests: Iterable[Any], /) -> Callable[[], None]:
        """Begin to fill in all requests; the call that is returned waits until they are."""
        ...


class Request(Protocol):
    """Something that a program waits for, such as a node without a distribution."""

    @property
    def engine(self) -> Evaluator:
        """What fills it in."""
        ...


Program = Generator[Sequence[Request], None, T]


def gather(programs: Iterable[Program[T]]) -> Program[list[T]]:
    """Run several programs of one example side by side; their requests share forwards.

    Returns their results in the order given.
    """
    waiting: dict[int, tuple[Program[T], Sequence[Request]]] = {}
    results: dict[int, T] = {}

    def advance(index: int, program: Program[T]) -> None:
        try:
            waiting[index] = program, next(program)
        except StopIteration as done:
            results[index] = done.value
            waiting.pop(index, None)

    for index, program in enumerate(programs):
        advance(index, program)
    while waiting:
        yield [request for _, requests in waiting.values() for request in requests]
        for index, (program, _) in list(waiting.items()):
            advance(index, program)
    return [results[index] for index in sorted(results)]


def evaluated(nodes: Iterable[Node]) -> Program[None]:
    """Ask for those of `nodes` that have no next-token distribution yet."""
    missing = [node for node in nodes if node.next is None]
    if missing:
        yield missing


class Engine(Protocol):
    """Runs one model for many sequences."""

    @property
    def model(self) -> "LanguageModel":
        """The model that this engine runs."""
        ...

    @property
    def context(self) -> int:
        """How many positions a sequence may have."""
        ...

    def share(self, prefix_ids: list[int]) -> None:
        """Prepare for prompts that begin with these ids, before the first sequence is opened."""
        ...

    def open(self, prompt_ids: list[int]) -> TokenSequence:
        """Begin a sequence after a prompt; its root is the prompt's last token, not evaluated."""
        ...

    def evaluate(self, nodes: Iterable[Node]) -> None:
        """Fill in `next` and `logprob` of nodes; a node's parent is evaluated or asked with it."""
        ...

    def commit(self, node: Node) -> None:
        """Append the path to `node` to its sequence and forget the rest of the tree."""
        ...

    def close(self, sequence: TokenSequence) -> None:
        """End a sequence and free what it holds."""
        ...
