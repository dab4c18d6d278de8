"""Items of similar length together, in random order."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

# Items sorted by length together: enough that a batch has little padding, few enough that the
# mixture of kinds stays the same throughout training.
SORTED_TOGETHER = 4000


def groups(
    items: Sequence[T], length: Callable[[T], int], tokens: int, rng: random.Random
) -> Iterator[list[T]]:
    """Groups of at most ``tokens`` ids with padding, in random order within each stretch."""
    for start in range(0, len(items), SORTED_TOGETHER):
        stretch = sorted(items[start : start + SORTED_TOGETHER], key=length)
        found = list(_grouped(stretch, length, tokens))
        rng.shuffle(found)
        yield from found


def _grouped(stretch: list[T], length: Callable[[T], int], tokens: int) -> Iterator[list[T]]:
    group: list[T] = []
    for item in stretch:
        if group and (len(group) + 1) * length(item) > tokens:
            yield group
            group = []
        group.append(item)
    if group:
        yield group
