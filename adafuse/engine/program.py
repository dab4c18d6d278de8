"""Decoding methods as coroutines over one example.

A program yields the nodes whose next-token distribution it needs and goes on when an engine has
filled them in; it knows nothing of batches. Programs compose with `yield from` and `gather`.
"""

from collections.abc import Generator, Iterable
from typing import TypeVar

from adafuse.engine.node import Node

T = TypeVar("T")

Program = Generator[list[Node], None, T]


def gather(programs: Iterable[Program[T]]) -> Program[list[T]]:
    """Run several programs of one example side by side; their requests share forwards.

    Returns their results in the order given.
    """
    waiting: dict[int, tuple[Program[T], list[Node]]] = {}
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
        yield [node for _, nodes in waiting.values() for node in nodes]
        for index, (program, _) in list(waiting.items()):
            advance(index, program)
    return [results[index] for index in sorted(results)]


def evaluated(nodes: Iterable[Node]) -> Program[None]:
    """Ask for those of `nodes` that have no next-token distribution yet."""
    missing = [node for node in nodes if node.next is None]
    if missing:
        yield missing
