"""How many tokens two models have in common."""

from collections.abc import Iterator, Mapping
from itertools import combinations

from adafuse.doctor.records import Finding, Overlap
from adafuse.text.surfaces import Surfaces

_FEW = 1.0
"""Percent."""


def overlaps(surfaces: Mapping[str, Surfaces]) -> list[Overlap]:
    """Compare all pairs of vocabularies by the bytes of their tokens."""
    written = {name: set(each.ids) for name, each in surfaces.items()}
    return [_overlap(one, other, written[one], written[other]) for one, other in _pairs(written)]


def wrong_with(found: list[Overlap]) -> Iterator[Finding]:
    """Warn of vocabularies that have next to nothing in common."""
    for each in found:
        if max(each.percent) < _FEW:
            first, second = each.models
            yield Finding(
                False,
                f"{first!r} and {second!r} have only {each.shared} tokens in common; use a method"
                " that fuses words, or bytewise",
            )


def _pairs(written: Mapping[str, set[bytes]]) -> Iterator[tuple[str, str]]:
    return combinations(written, 2)


def _overlap(one: str, other: str, first: set[bytes], second: set[bytes]) -> Overlap:
    shared = len(first & second)
    percent = (100 * shared / max(1, len(first)), 100 * shared / max(1, len(second)))
    return Overlap((one, other), shared, percent)
