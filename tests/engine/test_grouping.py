from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.engine import forward as grouping
from adafuse.engine.forward import batches
from adafuse.engine.node import TokenSequence
from adafuse.engine.tree import feed

ENGINE = SimpleNamespace(model=SimpleNamespace(name="m"), context=10_000)


def feeds(lengths):
    """One prompt of each length, a row each, as feeds."""
    rows = [TokenSequence(ENGINE, [1] * length, row) for row, length in enumerate(lengths)]
    return [feed(sequence, [sequence.root]) for sequence in rows]


def shapes(lengths):
    """(rows, tokens) of the forwards that the prompts share."""
    made = batches(feeds(lengths), "cpu")
    return sorted((batch.shape.rows, batch.shape.tokens) for batch in made)


def test_rows_of_about_one_length_share_a_forward():
    assert shapes([1, 1, 2, 1]) == [(4, 2)]


def test_a_prompt_does_not_pad_the_steps_of_others():
    assert shapes([1] * 8 + [40]) == [(1, 40), (8, 1)]


def test_a_short_chain_does_where_a_forward_costs_more():
    assert shapes([1] * 8 + [4]) == [(9, 4)]
    assert shapes([1] * 16 + [4]) == [(1, 4), (16, 1)]


def test_a_long_prompt_goes_in_pieces_that_follow_one_another(monkeypatch):
    monkeypatch.setattr(grouping, "PIECE", 100)
    made = list(batches(feeds([250]), "cpu"))
    assert [(batch.shape.tokens, batch.follows) for batch in made] == [
        (100, False),
        (100, True),
        (50, True),
    ]
    assert [len(batch.nodes) for batch in made] == [0, 0, 1]


@given(st.lists(st.integers(1, 90), min_size=1, max_size=12), st.integers(10, 60))
def test_every_token_is_fed_once_and_in_order(lengths, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "PIECE", piece)
        patch.setattr(grouping, "TOKEN_BUDGET", 2 * piece)
        fed = {row: [] for row in range(len(lengths))}
        for batch in batches(feeds(lengths), "cpu"):
            assert batch.shape.rows * batch.shape.tokens <= 2 * piece
            for row, tokens in batch.feeds:
                fed[row] += [token.position for token in tokens]
    assert list(fed.values()) == [list(range(length)) for length in lengths]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=7))
def test_no_other_grouping_by_length_costs_less(lengths):
    made = list(batches(feeds(lengths), "cpu"))
    cost = sum(32 + batch.shape.rows * batch.shape.tokens for batch in made)
    assert cost <= 32 + len(lengths) * max(lengths)
    assert cost <= sum(32 * (lengths.index(n) == i) + n for i, n in enumerate(lengths))
