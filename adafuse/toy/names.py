"""Invented proper names, put together from syllables."""

import random

ONSETS = ("B", "Br", "D", "Dr", "F", "G", "Gl", "H", "K", "Kr", "L", "M", "N", "P", "Qu", "R")
MORE_ONSETS = ("S", "Sk", "St", "T", "Tr", "V", "W", "Y", "Z", "Th", "Pl", "Sn")
VOWELS = ("a", "e", "i", "o", "u", "ai", "or", "el", "an", "ir")
TOWN_ENDINGS = ("mere", "wick", "ford", "holm", "stead", "by", "gate", "fell", "moor", "den")
COUNTRY_ENDINGS = ("nia", "land", "stan", "via", "ria", "dor")
FIRST_ENDINGS = ("la", "ra", "no", "mi", "nas", "ven", "len", "ro", "sa", "bin")
LAST_ENDINGS = ("nt", "sk", "rrow", "lund", "mble", "ck", "ver", "th", "nder", "zin")
RIVER_ENDINGS = ("n", "ss", "rn", "sh", "lle", "m", "ga", "th")


def invent(endings: tuple[str, ...], count: int, rng: random.Random) -> tuple[str, ...]:
    """``count`` different names with the given endings, in the order they were drawn."""
    found: dict[str, None] = {}
    while len(found) < count:
        onset = rng.choice(ONSETS + MORE_ONSETS)
        found.setdefault(onset + rng.choice(VOWELS) + rng.choice(endings))
    return tuple(found)
