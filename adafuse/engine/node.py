"""The token tree of an example in one model, and the coroutines that ask for its nodes."""

import sys
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import TYPE_CHECKING, Any, Optional, Protocol, TypeVar

if TYPE_CHECKING:
    import torch

    from adafuse.models.language_model import LanguageModel


class ContextFullError(Exception):
    """A token would not fit into the model's context; the text so far stands."""


@dataclass(slots=True)
class NextToken:
    """A model's distribution over the next token, reduced to what decoding reads.

    `top_ids` are the likeliest ids, highest first, ties to the lower id, `top_logprobs` theirs;
    `margin` is p(1) - p(2); `log_end` is log p(END), or less than it if that is not `end_known`.
    All from a float32 softmax over the ids below len(tokenizer). `logprobs` holds all
    log-probabilities, shape [vocabulary], on the device; it is empty once the node was released,
    and where a server evaluated it.
    """

    top_ids: tuple[int, ...]
    top_logprobs: tuple[float, ...]
    margin: float
    log_end: float
    logprobs: "torch.Tensor"
    end_known: bool = True

    @property
    def greedy(self) -> int:
        """The likeliest id."""
        return self.top_ids[0]


class Node:
    """A token under its parent. `next` is None until an engine has evaluated the node.

    `depth` is the position in the model's sequence (prompt included, from 0), `logprob` the
    token's log-probability after its parent (None while unknown), `slot` where the tree engine
    keeps its keys and values; `ends`: that a text ends here is to be scored.
    """

    __slots__ = (
        *("children", "depth", "ends", "logprob", "next", "parent", "sequence", "slot", "token"),
    )

    def __init__(self, sequence: "TokenSequence", parent: Optional["Node"], token: int) -> None:
        self.sequence = sequence
        self.parent = parent
        self.token = token
        self.depth: int = parent.depth + 1 if parent else len(sequence.ids) - 1
        self.children: dict[int, Node] = {}
        self.logprob: float | None = None
        self.next: NextToken | None = None
        self.slot: int | None = None
        self.ends = False

    @property
    def missing(self) -> bool:
        """Whether an engine has yet to evaluate the node."""
        return self.next is None or (self.ends and not self.next.end_known)

    def release(self) -> None:
        """Give up the row of log-probabilities; a child that needs it has the token run again."""
        if self.next is not None and not self.released:
            self.next.logprobs = self.next.logprobs.new_empty(0)

    def own_logprobs(self) -> None:
        """Copy the row of log-probabilities, or those of the whole forward would live on."""
        if self.next is not None:
            row = self.next.logprobs
            self.next.logprobs = row.clone() if row.untyped_storage().nbytes() > row.nbytes else row

    @property
    def released(self) -> bool:
        """Whether the row of log-probabilities was given up."""
        return self.next is not None and not len(self.next.logprobs)

    @property
    def engine(self) -> "Engine":
        """The engine that evaluates this node."""
        return self.sequence.engine

    def child(self, token: int) -> "Node":
        """Return the node of `token` under this one, making it if it is new.

        Raises:
            ContextFullError: the model has no position left for it.
        """
        if token not in self.children:
            if self.depth + 1 >= self.engine.context:
                raise ContextFullError(self.sequence.model.name)
            node = Node(self.sequence, self, token)
            if self.next is not None and token in self.next.top_ids:
                node.logprob = self.next.top_logprobs[self.next.top_ids.index(token)]
            self.children[token] = node
        return self.children[token]

    def chain(self, ids: Iterable[int]) -> list["Node"]:
        """Return the nodes of a chain of tokens under this one."""
        nodes = [self]
        for token in ids:
            nodes.append(nodes[-1].child(token))
        return nodes[1:]

    def path(self) -> list["Node"]:
        """Return the nodes from below the root down to this one (none for the root itself)."""
        nodes = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def above(self) -> list["Node"]:
        """Return the nodes from the root down to the parent of this one."""
        return [] if self.parent is None else [self.sequence.root, *self.path()[:-1]]

    @property
    def origin(self) -> "Node":
        """The node at which the path to this one begins: the root, unless that has moved on."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def subtree(self) -> Iterator["Node"]:
        """Yield this node and all nodes below it, each after its parent."""
        nodes = [self]
        while nodes:
            node = nodes.pop()
            yield node
            nodes.extend(node.children.values())

    def last_ids(self, count: int) -> list[int]:
        """Return up to `count` ids that end with this token, prompt ids included."""
        return (self.sequence.ids[-count:] + [node.token for node in self.path()])[-count:]


PRIOR = (2, 3)
"""A model is taken to be right in 2 of 3 tokens, until more is known."""


class TokenSequence:
    """One example in one model: its committed ids, and the root of the tree that follows them.

    The root stands for the last committed token. The model goes on after `tip`: the root, unless a
    method has decided on more than it commits, whose bytes are `pending`. `likeliest` are the ids
    that the model itself would have written in the place of each committed one. Nobody reads what
    follows one of the strings `stop`.

    `forwards` counts the forward passes that it took part in, `evaluated` the tokens after the
    prompt that these ran.

    The tree engine keeps the sequence in `row` of its cache: keys and values of the first `cached`
    ids, and of nodes in the slots below `used`.
    """

    def __init__(self, engine: "Engine", prompt_ids: list[int], row: int = 0) -> None:
        self.engine = engine
        self.model = engine.model
        self.prompt_length = len(prompt_ids)
        self.ids = list(prompt_ids)
        self.root = Node(self, None, prompt_ids[-1])
        self.row = row
        self.cached = 0
        self.used = len(prompt_ids)
        self.forwards = 0
        self.evaluated = 0
        self.tip = self.root
        self.pending = b""
        self.likeliest: list[int] = []
        self.stop: tuple[str, ...] = ()

    @property
    def generated(self) -> int:
        """How many ids were committed after the prompt."""
        return len(self.ids) - self.prompt_length

    @property
    def rate(self) -> float:
        """How often what was committed is what the model would have written, as far as is known."""
        kept: int = sum(map(eq, self.likeliest, self.ids[self.prompt_length :]))
        return (kept + PRIOR[0]) / (len(self.likeliest) + PRIOR[1])

    def count(self, positions: Iterable[int]) -> None:
        """Count a forward pass that runs the tokens at these positions."""
        self.forwards += 1
        self.evaluated += sum(position >= self.prompt_length for position in positions)

    def rewind(self, length: int) -> list[int]:
        """End the prompt after its first `length` ids, before a node is evaluated; return the rest.

        They are still ids of the prompt when they are committed.
        """
        rest = self.ids[length:]
        del self.ids[length:]
        self.root = self.tip = Node(self, None, self.ids[-1])
        self.cached, self.used = min(self.cached, length), length
        return rest

    def release(self, keep: Node | None = None) -> None:
        """Release all nodes but `keep` and those below it.

        As nodes refer to one another, they live on for a while.
        """
        for node in {*self.root.subtree()} - {*(keep.subtree() if keep else ())}:
            node.release()

    def commit(self, node: Node) -> list[Node]:
        """Append the path to `node`, which becomes the root, and return it.

        The nodes below it stay, all others are forgotten.
        """
        path = node.path()
        self.ids.extend(step.token for step in path)
        for parent, step in zip([self.root, *path], path, strict=False):
            self.likeliest.append(step.token if parent.next is None else parent.next.greedy)
        self.release(keep=node)
        node.parent = None
        for kept in node.subtree():
            kept.own_logprobs()
        self.root = self.tip = node
        self.pending = b""
        return path


def to_run(nodes: Iterable[Node]) -> list[Node]:
    """Return those of `nodes` that are not evaluated, and released parents that they need."""
    missing = [node for node in nodes if node.next is None]
    parents = (n.parent for n in missing if n.logprob is None and n.parent and n.parent.released)
    return list(dict.fromkeys([*parents, *missing]))


def leaves(nodes: Iterable[Node]) -> list[Node]:
    """Return those of `nodes` that are on the way to no other one of them."""
    nodes = [*nodes]
    above = {node for leaf in nodes for node in leaf.above()}
    return [node for node in nodes if node not in above]


@dataclass(frozen=True, slots=True)
class Pending:
    """A request that is answered elsewhere: its answer, and what `fill`s it in."""

    answer: Future[Any]
    fill: Callable[[Any], None]

    def finish(self) -> None:
        """Wait for the answer and fill it in."""
        self.fill(self.answer.result())


class Evaluator:
    """Fills in requests of one kind, those of many examples at a time."""

    @property
    def device(self) -> Hashable:
        """Evaluators on the same device take turns."""
        return self

    def evaluate(self, requests: Iterable[Any]) -> None:
        """Fill in all requests."""
        raise NotImplementedError

    def start(self, requests: Iterable[Any]) -> Callable[[], None]:
        """Begin to fill in all requests; the call that is returned waits until they are."""
        return partial(self.evaluate, requests)

    def begin(self, requests: Iterable[Any]) -> Sequence[Pending] | None:
        """Send the requests of one example elsewhere; None: they are to be evaluated here."""
        return None


class Engine(Evaluator):
    """Runs one model for many sequences.

    `evaluate` fills in `next` and `logprob` of nodes, whose parents are evaluated or among them. An
    engine that is `lazy` is not asked for what can wait until it is needed: there each request
    costs, and not each token.
    `spare` is what a forward costs besides its tokens, in tokens, for each sequence in it. At least
    the `top` likeliest ids of each node are read; more may be asked for between forwards. Beyond
    `limit` tokens each node is a forward of the whole text.
    """

    spare = 0.0
    lazy = False
    top = 2
    limit = sys.maxsize

    def __init__(self, model: "LanguageModel") -> None:
        self.model = model
        self.context = model.context

    def share(self, prefix_ids: list[int], least: int = 1) -> None:
        """Prepare for prompts that begin with these ids, if `least` of them are new.

        A row must be free.
        """

    def open(self, prompt_ids: list[int]) -> TokenSequence:
        """Begin a sequence after a prompt; its root is the prompt's last token, not evaluated."""
        return TokenSequence(self, prompt_ids)

    def commit(self, node: Node) -> None:
        """Append the path to `node` to its sequence and forget the rest of the tree."""
        node.sequence.commit(node)

    def close(self, sequence: TokenSequence) -> None:
        """End a sequence and free what it holds."""
        sequence.release()


class Request(Protocol):
    """Something that a program waits for, such as a node without a distribution."""

    @property
    def engine(self) -> Evaluator:
        """What fills it in."""
        ...


T = TypeVar("T")
Program = Generator[Sequence[Request], None, T]


def gather(programs: Iterable[Program[T]]) -> Program[list[T]]:
    """Run several programs of one example side by side; their requests share forwards.

    Returns their results in the order given.
    """
    running = dict(enumerate(programs))
    results: dict[int, T] = {}
    while True:
        requests: list[Request] = []
        for index, program in list(running.items()):
            try:
                requests += next(program)
            except StopIteration as done:
                results[index] = done.value
                del running[index]
        if not running:
            return [results[index] for index in sorted(results)]
        yield requests


def evaluated(nodes: Iterable[Node]) -> Program[None]:
    """Ask for those of `nodes` that have no next-token distribution yet.

    It yields where there are none, too, so that a program which goes on for ever is ended.
    """
    yield [node for node in nodes if node.missing]
