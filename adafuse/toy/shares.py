"""Who knows what: the part of the toy world that each model is taught truthfully."""

import random
from collections.abc import Sequence

from adafuse.toy.records import DEFAULT_PAIR, MODEL_NAMES

HIDDEN = 0.08
"""The share that neither model of the default pair knows."""


def split(keys: Sequence[str], share: float, rng: random.Random) -> dict[str, frozenset[str]]:
    """The keys known to each model, ``share`` of them each.

    The default pair takes the two ends of one shuffled list, whose rest neither has heard of, so
    that fusing them leaves something to be desired; every other model draws its part at random.
    """
    count = round(share * len(keys))
    ends = rng.sample(list(keys), len(keys))[: round((1 - HIDDEN) * len(keys))]
    first, second = DEFAULT_PAIR
    known = {first: frozenset(ends[:count]), second: frozenset(ends[-count:])}
    for name in MODEL_NAMES:
        known.setdefault(name, frozenset(rng.sample(list(keys), count)))
    return known


def split_groups(
    groups: Sequence[Sequence[str]], share: float, rng: random.Random
) -> dict[str, frozenset[str]]:
    """Like ``split``, with ``share`` kept in each group (word classes, kinds of facts)."""
    parts = [split(group, share, rng) for group in groups]
    return {name: frozenset().union(*(part[name] for part in parts)) for name in MODEL_NAMES}
