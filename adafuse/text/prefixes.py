"""A vocabulary sorted by bytes: the tokens that begin alike are one range of it."""

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from adafuse.text.surfaces import Surfaces

_REMEMBERED = 1 << 16


@dataclass(frozen=True, slots=True)
class Following:
    """The tokens from `first` to `last` begin with some bytes and go on.

    `bytes` are the different next bytes, `starts` where the tokens of each begin behind `first`.
    """

    first: int
    last: int
    bytes: NDArray[np.int64]
    starts: NDArray[np.int64]

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up what the tokens of each next byte have; `values` is in sorted order."""
        if self.first == self.last:
            return np.zeros(0)
        return np.add.reduceat(values[self.first : self.last], self.starts)


class SortedVocabulary:
    """The ids of a vocabulary in the order of their bytes: `order[place]` is an id.

    Ids without bytes and those in `without` are left out.
    """

    def __init__(self, surfaces: Surfaces, without: Collection[int] = ()) -> None:
        pairs = [(surface, index) for index, surface in enumerate(surfaces.of) if surface]
        pairs = sorted(pair for pair in pairs if pair[1] not in without)
        self.order: NDArray[np.int64] = np.array([index for _, index in pairs], np.int64)
        self._sorted = [surface for surface, _ in pairs]
        self.following = lru_cache(_REMEMBERED)(self._following)
        """What goes on behind some bytes; the last prefixes asked for are remembered."""

    def _following(self, prefix: bytes) -> Following:
        size = len(prefix)
        first = bisect_right(self._sorted, prefix)
        last = bisect_right(self._sorted, prefix, first, key=lambda surface: surface[:size])
        following, starts, place = [], [], first
        while place < last:
            longer = self._sorted[place][: size + 1]
            following.append(longer[size])
            starts.append(place - first)
            place = bisect_right(
                self._sorted, longer, place, last, key=lambda surface: surface[: size + 1]
            )
        return Following(first, last, np.array(following, np.int64), np.array(starts, np.int64))
