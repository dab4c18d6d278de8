"""Which rows share a forward: padding costs tokens, and every forward costs something itself."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from adafuse.engine.batch import Batch
from adafuse.engine.feed import Feed

PIECE = 512
"""A row feeds at most this many tokens in one forward; longer prompts go in pieces."""
TOKEN_BUDGET = 8192
"""At most this many tokens, padding included, go through one forward."""
FORWARD_COST = {"cpu": 32, "cuda": 256}
"""What a forward costs besides its tokens, in tokens: reading the weights takes so long."""


def batches(feeds: Sequence[Feed], device_type: str) -> Iterator[Batch]:
    """Group feeds into forwards; pieces of a long row follow one another."""
    for group in _groups(feeds, FORWARD_COST.get(device_type, 256)):
        width = min(len(group[0].tokens), PIECE)
        rows = max(1, TOKEN_BUDGET // width)
        for start in range(0, len(group), rows):
            yield from _in_pieces(group[start : start + rows])


def _groups(feeds: Sequence[Feed], cost: int) -> list[list[Feed]]:
    """Split feeds by length so that forwards and padded tokens together cost least."""
    longest_first = sorted(feeds, key=lambda feed: -len(feed.tokens))
    runs = [list(run) for _, run in groupby(longest_first, key=lambda feed: len(feed.tokens))]
    plans: list[tuple[int, list[list[Feed]]]] = [(0, [])]
    for end in range(1, len(runs) + 1):
        choices = []
        for start in range(end):
            before, groups = plans[start]
            group = [feed for run in runs[start:end] for feed in run]
            choices.append((before + cost + len(group) * len(group[0].tokens), [*groups, group]))
        plans.append(min(choices, key=lambda plan: plan[0]))
    return plans[-1][1]


def _in_pieces(feeds: Sequence[Feed]) -> Iterator[Batch]:
    longest = len(feeds[0].tokens)
    for start in range(0, longest, PIECE):
        pieces = [f.part(start, start + PIECE) for f in feeds if len(f.tokens) > start]
        yield Batch(pieces, follows=start > 0)
