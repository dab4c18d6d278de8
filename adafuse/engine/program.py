"""Decoding methods as coroutines over one example.

A program yields requests, most of them nodes whose next-token distribution it needs, and goes on
when their engines have filled them in; it knows nothing of batches. Programs compose with
`yield from` and `gather`.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from adafuse.engine.node import Node

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
