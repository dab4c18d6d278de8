from types import SimpleNamespace

import torch

from adafuse.engine.feed import Batch, Feed
from adafuse.engine.node import Sequence

ENGINE = SimpleNamespace(model=SimpleNamespace(name="m"), context=100)


def batch():
    """Row 0 feeds a prompt of two; row 1, with three committed, feeds a fork of two branches."""
    first = Sequence(ENGINE, [5, 6], row=0)
    second = Sequence(ENGINE, [7, 8, 9], row=1)
    second.cached = 3
    left = second.root.chain((1, 2))
    right = second.root.chain((3,))
    return Batch([Feed.of(second, [*left, *right]), Feed.of(first, [first.root])])


def test_rows_are_padded_on_the_left_and_sorted():
    given = batch()
    assert given.rows.tolist() == [0, 1]
    assert given.ids.tolist() == [[0, 5, 6], [1, 3, 2]]
    assert given.positions.tolist() == [[0, 0, 1], [3, 3, 4]]


def test_tokens_see_the_committed_text_and_their_own_ancestors():
    seen = batch().mask(torch.device("cpu"))
    assert seen[0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],  # padding
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
    ]
    assert seen[1].int().tolist() == [
        [1, 1, 1, 1, 0, 0],  # the first token of the left branch
        [1, 1, 1, 0, 1, 0],  # the right branch
        [1, 1, 1, 1, 0, 1],  # the second token of the left branch, behind its parent
    ]


def test_only_logits_that_are_read_are_kept():
    given = batch()
    assert given.keep == 3
    first = Sequence(ENGINE, list(range(10)), row=0)
    alone = Batch([Feed.of(first, [first.root])])
    assert alone.keep == 1
    assert alone.reads == [(0, 0)]


def test_padding_is_written_where_nothing_looks():
    given = batch()
    assert given.slots[0, 0] == given.view
