"""Decoding methods as coroutines over one example.

A program yields requests, most of them nodes whose next-token distribution it needs, and goes on
when their engines have filled them in; it knows nothing of batches. Programs compose with
`yield from` and `gather`.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from adafuse.engine.node import Node, TokenSequence

if TYPE_CHECKING:
    from adafuse.models.language_model import LanguageModel

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
