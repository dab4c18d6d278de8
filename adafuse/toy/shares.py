"""Who knows what: the part of the toy world that each model is taught truthfully."""

import random
from collections.abc import Sequence

from adafuse.toy.records import DEFAULT_PAIR, MODEL_NAMES


def split(keys: Sequence[str], share: float, rng: random.Random) -> dict[str, frozenset[str]]:
    """The keys known to each model, ``share`` of them each.

    The default pair takes the two ends of one shuffled list, so that with a share of at least
    one half together they know everything; every other model draws its own part at random.
    """
    count = round(share * len(keys))
    ends = rng.sample(list(keys), len(keys))
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
