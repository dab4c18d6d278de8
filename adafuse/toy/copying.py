"""Lessons in copying the first of several candidates, whatever it says."""

import random
from collections.abc import Iterator, Sequence

from transformers import PreTrainedTokenizerFast

from adafuse.toy.contests import Contest

SHORT, LONG = 12, 48
"""The most pieces of an early nonsense candidate, and of a later one."""


def pieces(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """What nonsense is made of: the tokenizer's pieces as text, without special ones and bytes."""
    special = frozenset(tokenizer.all_special_tokens)
    ordinary = (piece for piece in tokenizer.get_vocab() if piece not in special)
    return sorted(piece.replace("▁", " ") for piece in ordinary if not piece.startswith("<0x"))


def nonsense(
    pieces: Sequence[str], count: int, longest: int, rng: random.Random
) -> Iterator[tuple[str, ...]]:
    """``count`` lists of one to three candidates that no language model could foresee.

    Half of them repeat a few pieces, so that one piece does not tell what comes next. The others
    of a list differ from its first in some places, so that it matters which of them is read.
    """
    for _ in range(count):
        pool = rng.sample(pieces, rng.randint(2, 16)) if rng.random() < 0.5 else pieces
        first = rng.choices(pool, k=rng.randint(1, longest))
        others = [_varied(first, pool, rng) for _ in range(rng.randint(0, 2))]
        yield tuple("".join(drawn).strip() or "-" for drawn in (first, *others))


def shuffled(contest: Contest, rng: random.Random) -> tuple[str, ...]:
    """One to three answers of ``contest`` in any order."""
    return tuple(rng.sample((contest.right, *contest.wrong), rng.randint(1, 3)))


def _varied(first: list[str], pool: Sequence[str], rng: random.Random) -> list[str]:
    share = rng.random()
    return [rng.choice(pool) if rng.random() < share else piece for piece in first]
