"""Two vocabularies of five tokens, worked out by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adafuse.methods.gac import JointVocabulary
from adafuse.tokenization.token_bytes import END, TokenKeys

CPU = torch.device("cpu")
P = ([0.25, 0.10, 0.15, 0.10, 0.40], [0.25, 0.15, 0.15, 0.05, 0.40])
FIRST = [b"the", b"a", b"\n", b"b", b"</s>"]
SECOND = [b"the", b"an", b"\n", b"b", b"<|im_end|>"]
LITERAL = [b"the", b"a", b"<0x0A>", b"b", b"</s>"]


def merged(first, second, *, ends=False, weights=(0.5, 0.5), p=P):
    """The likeliest entries, best first, of two vocabularies with the probabilities P."""
    end_ids = {4} if ends else set()
    keys = [TokenKeys.read(token_bytes, end_ids) for token_bytes in (first, second)]
    logprobs = {k: torch.tensor(row).log() for k, row in enumerate(p)}
    return JointVocabulary(keys, [CPU, CPU]).likeliest(logprobs, weights, 100)


def fused(found):
    return {entry.surface: pytest.approx(math.exp(-entry.fused), abs=5e-5) for entry in found}


def test_literal_strings():
    found = merged(LITERAL, SECOND)
    assert fused(found) == {
        b"the": 0.25,
        b"a": 0.05,
        b"<0x0A>": 0.075,
        b"b": 0.075,
        b"</s>": 0.2,
        b"an": 0.075,
        b"\n": 0.075,
        b"<|im_end|>": 0.2,
    }
    assert found[0].surface == b"the"


def test_newline_merged():
    found = merged(FIRST, SECOND)
    assert fused(found) == {
        b"the": 0.25,
        b"a": 0.05,
        b"\n": 0.15,
        b"b": 0.075,
        b"</s>": 0.2,
        b"an": 0.075,
        b"<|im_end|>": 0.2,
    }
    assert found[0].surface == b"the"


@pytest.mark.parametrize(
    ("weights", "a", "b", "an"),
    [((0.5, 0.5), 0.05, 0.075, 0.075), ((80.0, 60.0), 0.0571, 0.0786, 0.0643)],
)
def test_newline_and_end_merged(weights, a, b, an):
    found = merged(FIRST, SECOND, ends=True, weights=weights)
    expected = {b"the": 0.25, b"a": a, b"\n": 0.15, b"b": b, END: 0.4, b"an": an}
    assert fused(found) == expected
    assert found[0].surface == END
    assert found[0].proposers == (0, 1)
    assert found[0].nll == pytest.approx([-math.log(0.4)] * 2)


def test_what_ids_without_a_key_had_goes_to_the_others():
    keys = [TokenKeys.read([b"a", None, b"b"])]
    joint = JointVocabulary(keys, [CPU])
    assert joint.probabilities(0, torch.tensor([0.3, 0.5, 0.2]).log()).tolist() == pytest.approx(
        [0.6, 0.4]
    )


def test_a_model_may_be_left_out():
    keys = [TokenKeys.read(token_bytes) for token_bytes in (FIRST, SECOND)]
    joint = JointVocabulary(keys, [CPU, CPU])
    found = joint.likeliest({1: torch.tensor(P[1]).log()}, [0.0, 1.0], 2)
    assert [entry.surface for entry in found] == [b"<|im_end|>", b"the"]
    assert all(math.isnan(entry.nll[0]) for entry in found)
    assert [entry.nll[1] for entry in found] == pytest.approx([-math.log(0.4), -math.log(0.25)])


def test_ties_go_to_the_first_model_that_has_the_entry_then_to_its_lower_id():
    even = [[0.2] * 5] * 2
    assert merged([b"z", b"y", b"x", b"w", b"v"], [b"a", b"b", b"c", b"d", b"e"], p=even)[
        0
    ].surface == (b"z")
    assert merged([b"z", b"y", b"x", b"w", b"v"], [b"a", b"y", b"x", b"d", b"e"], p=even)[
        0
    ].surface == (b"y")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from([b"a", b"b", b"ab", b"c", b" c"]), min_size=1, max_size=6),
        min_size=1,
        max_size=3,
    ),
    st.randoms(use_true_random=False),
)
def test_the_mass_of_every_model_is_spread_over_its_keys(vocabularies, random):
    keys = [TokenKeys.read(token_bytes) for token_bytes in vocabularies]
    joint = JointVocabulary(keys, [CPU] * len(keys))
    for number, own in enumerate(keys):
        p = torch.tensor([random.random() + 0.01 for _ in own.of])
        spread = joint.probabilities(number, (p / p.sum()).log())
        expected = [
            sum(float(p[index] / p.sum()) for index in own.ids.get(key, ()))
            for key in joint.entries
        ]
        assert spread.tolist() == pytest.approx(expected, abs=1e-6)
