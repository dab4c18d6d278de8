"""What a network keeps of the texts that it has read, taken apart by row and put together again."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import torch

_FEW = 2
"""Ids of a text that shows what a cache is made of: all are within a window."""


@dataclass(slots=True)
class Pieces:
    """What grows with a text: entries of its last ids, after those `before`."""

    tensors: list[torch.Tensor]
    before: "Pieces | None"

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        """Yield these, and what is before them."""
        pieces: Pieces | None = self
        while pieces is not None:
            yield pieces.tensors
            pieces = pieces.before


class Past(NamedTuple):
    """What a network keeps of the first `length` ids of one text.

    `states` have a fixed size, `pieces` an entry for each id.
    """

    length: int
    states: list[torch.Tensor]
    pieces: Pieces


class _Kind(NamedTuple):
    """Along which dimensions a tensor has rows and ids; or whether a number counts ids."""

    rows: int | None = None
    ids: int | None = None
    counts: bool = False


class CacheLayout:
    """Where a network's cache has rows and ids, as three short texts show it.

    A cache is taken to consist of tensors, of numbers, and of what is always the same. A part of it
    may be attributes that are `held` by modules, each the path of one and a name.

    Raises:
        ValueError: it is something else.
    """

    def __init__(
        self, held: Sequence[tuple[str, str]], read: Callable[[list[list[int]]], Any]
    ) -> None:
        self.held = held
        ids = [0] * (_FEW + 1)
        self._cache = read([ids[:-1]])
        caches = [_apart(cache) for cache in (self._cache, read([ids[:-1]] * 2), read([ids]))]
        if len({(*map(type, values),) for values in caches}) > 1:
            raise ValueError("its cache changes its form")
        self._values = caches[0]
        self._kinds = [*map(_kind, *caches)]
        self._most: dict[int, int] = {}
        """How many ids tensors hold, where that has been seen to be limited: by a window."""

    @property
    def bytes(self) -> tuple[int, int]:
        """The bytes of the states of a row, and those of each of its ids."""
        sizes = [0, 0]
        for value, kind in zip(self._values, self._kinds, strict=True):
            if kind.rows is not None:
                sizes[kind.ids is not None] += value.nbytes
        return sizes[0], sizes[1] // _FEW

    def join(self, pasts: Sequence[Past]) -> Any:
        """Return a cache whose rows are these; shorter ones have zeros on their left."""
        total = max(past.length for past in pasts)
        values, states, grown = list(self._values), count(), count()
        for index, kind in enumerate(self._kinds):
            if kind.counts:
                values[index] += total - _FEW
            elif kind.ids is not None:
                size = min(total, self._most.get(index, total))
                values[index] = _joined([p.pieces for p in pasts], next(grown), kind, size)
            elif kind.rows is not None:
                number = next(states)
                values[index] = torch.cat([past.states[number] for past in pasts], dim=kind.rows)
        left = iter(values)
        return _mapped(self._cache, lambda _: next(left), {})

    def split(self, cache: Any, before: Sequence[Past | None], new: int) -> list[Past]:
        """Return what a cache holds of each row, after it has read `new` further ids."""
        values = _apart(cache)
        lengths = [past.length + new if past else new for past in before]
        pieces = [Pieces([], past.pieces if past else None) for past in before]
        after = [*map(Past, lengths, ([] for _ in before), pieces)]
        for index, (value, kind) in enumerate(zip(values, self._kinds, strict=True)):
            if kind.rows is None:
                continue
            if kind.ids is not None and value.shape[kind.ids] < max(lengths):
                self._most[index] = value.shape[kind.ids]
            for past, own in zip(after, torch.split(value, 1, kind.rows), strict=True):
                if kind.ids is None:
                    past.states.append(own.clone())
                else:
                    past.pieces.tensors.append(_last(own, kind.ids, new).clone())
        return after

    def flattened(self, past: Past) -> Past:
        """Return a past whose pieces, and those before them, are made one."""
        if past.pieces.before is not None:
            grown = [(i, kind) for i, kind in enumerate(self._kinds) if kind.ids is not None]
            past.pieces.tensors = [
                _joined([past.pieces], n, kind, min(past.length, self._most.get(i, past.length)))
                for n, (i, kind) in enumerate(grown)
            ]
            past.pieces.before = None
        return past


def _last(tensor: torch.Tensor, dimension: int, size: int) -> torch.Tensor:
    size = min(size, tensor.shape[dimension])
    return tensor.narrow(dimension, tensor.shape[dimension] - size, size)


def _joined(rows: Sequence[Pieces], number: int, kind: _Kind, size: int) -> torch.Tensor:
    """Return a tensor of several rows with room for `size` ids, filled from the right."""
    assert kind.rows is not None and kind.ids is not None
    first = rows[0].tensors[number]
    if len(rows) == 1 and first.shape[kind.ids] == size:
        return first
    shape = list(first.shape)
    shape[kind.rows], shape[kind.ids] = len(rows), size
    joined = first.new_zeros(shape)
    for own, row in zip(rows, torch.split(joined, 1, kind.rows), strict=True):
        left, pieces = size, iter(own)
        while left and (part := next(pieces, None)) is not None:
            piece = _last(part[number], kind.ids, left)
            left -= piece.shape[kind.ids]
            row.narrow(kind.ids, left, piece.shape[kind.ids]).copy_(piece)
    return joined


def _kind(value: Any, wider: Any, longer: Any) -> _Kind:
    """Compare a value with that of two rows, and with that of one more id."""
    if not isinstance(value, torch.Tensor):
        if value != wider or longer - value not in (0, 1):
            raise ValueError(f"its cache has a number that goes from {value} to {longer}")
        return _Kind(counts=longer != value)
    if not value.dim() == wider.dim() == longer.dim():
        raise ValueError("a tensor of its cache changes its form")
    rows, ids = _differing(value, wider), _differing(value, longer)
    if (len(rows), len(ids)) in ((1, 0), (1, 1)) and rows != ids and value.shape[rows[0]] == 1:
        kind = _Kind(rows[0], ids[0] if ids else None)
        if kind.ids is None or value.shape[kind.ids] == longer.shape[kind.ids] - 1 == _FEW:
            return kind
    if rows or ids or not torch.equal(value, wider) or not torch.equal(value, longer):
        raise ValueError(f"its cache has a tensor of shape {tuple(value.shape)} without rows")
    return _Kind()


def _differing(value: torch.Tensor, other: torch.Tensor) -> list[int]:
    sizes = zip(value.shape, other.shape, strict=True)
    return [dimension for dimension, (size, now) in enumerate(sizes) if size != now]


def _mapped(value: Any, change: Callable[[Any], Any], seen: dict[int, Any]) -> Any:
    """Return a copy of a value, and of what it consists of, with its tensors and numbers changed.

    `seen` are the copies that were made before, by the identities of the originals.
    """
    if type(value) is int:
        return change(value)
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, torch.Tensor):
        seen[id(value)] = change(value)
    elif isinstance(value, list | tuple):
        seen[id(value)] = type(value)(_mapped(each, change, seen) for each in value)
    elif isinstance(value, dict) or isinstance(getattr(value, "__dict__", None), dict):
        seen[id(value)] = new = copy.copy(value)
        items = new if isinstance(new, dict) else vars(new)
        items.update({name: _mapped(each, change, seen) for name, each in [*items.items()]})
    return seen.get(id(value), value)


def _apart(cache: Any) -> list[Any]:
    """Return the tensors and numbers of a cache."""
    values: list[Any] = []
    _mapped(cache, values.append, {})
    return values
