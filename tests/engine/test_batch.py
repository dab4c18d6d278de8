from types import SimpleNamespace

import torch

from adafuse.engine.forward import ForwardBatch, Inputs, Shape
from adafuse.engine.node import TokenSequence
from adafuse.engine.tree import feed

ENGINE = SimpleNamespace(model=SimpleNamespace(name="m"), context=100)
CPU = torch.device("cpu")
SCRATCH = 15


def batch():
    """Row 0 feeds a prompt of two; row 2, with three committed, feeds a fork of two branches."""
    first = TokenSequence(ENGINE, [5, 6], row=0)
    second = TokenSequence(ENGINE, [7, 8, 9], row=2)
    second.cached = 3
    left = second.root.chain((1, 2))
    right = second.root.chain((3,))
    return ForwardBatch([feed(second, [*left, *right]), feed(first, [first.root])])


def inputs(given, shape=None, cache_rows=4):
    """The tensors of a batch in a cache of so many rows, 16 slots each."""
    return Inputs(given, shape or given.shape, cache_rows, SCRATCH, CPU)


def test_rows_are_padded_on_the_left_and_sorted():
    given = inputs(batch())
    assert given.rows.tolist() == [0, 2]
    assert given.ids.tolist() == [[0, 5, 6], [1, 3, 2]]
    assert given.positions.tolist() == [[0, 0, 1], [3, 3, 4]]


def test_tokens_see_the_committed_text_and_their_own_ancestors():
    seen = inputs(batch()).seen(None)
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
    assert inputs(given).reads.tolist() == [[0, 1, 1, 1], [-1, -3, -2, -1]]
    first = TokenSequence(ENGINE, list(range(10)), row=0)
    assert ForwardBatch([feed(first, [first.root])]).keep == 1


def test_padding_is_written_where_nothing_looks():
    assert inputs(batch()).slots[0, 0] == SCRATCH


def test_a_larger_shape_adds_padding_and_changes_nothing_else():
    given = inputs(batch(), Shape(3, 4, 16))
    assert given.ids.tolist() == [[0, 0, 5, 6], [0, 1, 3, 2], [0, 0, 0, 0]]
    assert given.rows.tolist() == [0, 2, 0]
    assert given.slots[2].tolist() == [SCRATCH] * 4
    assert given.reads.tolist() == [[0, 1, 1, 1], [-1, -3, -2, -1]]
    assert torch.equal(given.seen(None)[:2, 1:, :6], inputs(batch()).seen(None))
    assert not given.seen(None)[:2, :, 6:].any()


def test_a_shape_of_all_rows_puts_each_in_its_place():
    given = inputs(batch(), Shape(4, 3, 6))
    assert given.whole
    assert given.rows.tolist() == [0, 1, 2, 3]
    assert given.ids.tolist() == [[0, 5, 6], [0, 0, 0], [1, 3, 2], [0, 0, 0]]
    assert given.reads[0].tolist() == [0, 2, 2, 2]
    assert given.seen(None)[2, 2].tolist() == inputs(batch()).seen(None)[1, 2].tolist()
