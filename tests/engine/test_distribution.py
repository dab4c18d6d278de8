from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adafuse.engine.forward import largest, read_logits
from adafuse.engine.node import TokenSequence


def engine(vocabulary=5):
    """An engine that only names its model."""
    model = SimpleNamespace(
        name="m", vocabulary=vocabulary, end_ids=frozenset([1, 2]), unused_ids=()
    )
    return SimpleNamespace(model=model, context=100)


def filled(logits):
    """The root of a sequence whose distribution comes from one row of logits."""
    owner = engine()
    sequence = TokenSequence(owner, [0, 3])
    read_logits(owner.model, 2, [sequence.root], torch.tensor([logits]))()
    return sequence.root


def test_padded_rows_of_the_output_layer_have_no_probability():
    node = filled([0.0, 0.0, 0.0, 0.0, 0.0, 50.0, 50.0])
    assert node.next.logprobs.shape == (5,)
    assert node.next.logprobs.exp().sum() == pytest.approx(1)


def test_the_probability_of_the_end_is_the_sum_over_its_ids():
    node = filled([0.0, 1.0, 2.0, 0.5, 0.0])
    probabilities = torch.tensor([0.0, 1.0, 2.0, 0.5, 0.0]).softmax(0)
    assert node.next.log_end == pytest.approx(float((probabilities[1] + probabilities[2]).log()))


def test_the_margin_is_the_difference_of_the_two_largest_probabilities():
    node = filled([0.0, 1.0, 3.0, 0.5, 2.0])
    first, second = torch.tensor([0.0, 1.0, 3.0, 0.5, 2.0]).softmax(0)[[2, 4]]
    assert node.next.top_ids == (2, 4)
    assert node.next.margin == pytest.approx(float(first - second))


@pytest.mark.parametrize("size", [5, 5000])
def test_a_token_is_the_likeliest_once_if_all_others_are_masked(size):
    logits = [-float("inf")] * size
    logits[3] = 2.0
    owner = engine(vocabulary=size)
    root = TokenSequence(owner, [0, 3]).root
    read_logits(owner.model, 3, [root], torch.tensor([logits]))()
    assert root.next.top_ids == (3, 0, 1)
    assert root.next.margin == 1


def test_16_bit_logits_are_normalised_in_float32():
    owner = engine(vocabulary=1000)
    sequence = TokenSequence(owner, [0])
    read_logits(owner.model, 2, [sequence.root], torch.zeros(1, 1000, dtype=torch.bfloat16))()
    assert sequence.root.next.logprobs.dtype == torch.float32
    assert float(sequence.root.next.logprobs.exp().sum()) == pytest.approx(1, abs=1e-5)


@given(st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=4))
def test_the_largest_are_sorted_with_ties_to_the_lower_index(rows):
    indices, values = largest(torch.tensor(rows).float(), 4)
    for row, found, value in zip(rows, indices.tolist(), values.tolist(), strict=True):
        expected = sorted(range(6), key=lambda index: (-row[index], index))[:4]
        assert found == expected
        assert value == [row[index] for index in expected]


@given(
    st.integers(2048, 6000), st.integers(1, 3), st.integers(1, 4000), st.integers(0), st.booleans()
)
def test_so_are_those_of_a_large_vocabulary(size, count, different, seed, masked):
    generator = torch.Generator().manual_seed(seed % 2**63)
    rows = torch.randint(different, (3, size), generator=generator).float()
    if masked:
        rows[rows < different - 1] = -torch.inf
    values, indices = rows.sort(dim=1, descending=True, stable=True)
    found = largest(rows, count)
    assert found[0].equal(indices[:, :count])
    assert found[1].equal(values[:, :count])


def test_a_chain_knows_its_log_probabilities_from_parents_inside_and_outside_the_request():
    owner = engine()
    sequence = TokenSequence(owner, [0])
    read_logits(owner.model, 2, [sequence.root], torch.tensor([[0.0, 1.0, 2.0, 3.0, 4.0]]))()
    chain = sequence.root.chain((0, 1))
    read_logits(owner.model, 2, chain, torch.tensor([[5.0, 1.0, 0.0, 0.0, 0.0], [0.0] * 5]))()
    first = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0]).log_softmax(0)
    second = torch.tensor([5.0, 1.0, 0.0, 0.0, 0.0]).log_softmax(0)
    assert [node.logprob for node in chain] == pytest.approx([float(first[0]), float(second[1])])
