import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.decoding.byte_words import SortedVocabulary
from adafuse.tokenization.token_bytes import TokenBytes
from tests.conftest import SHARED

# Few different bytes, so that prefixes are shared; 0xff has no byte above it.
BYTES = st.binary(max_size=4).map(lambda data: bytes(b"ab\x00\xff"[byte % 4] for byte in data))


@given(st.lists(st.none() | BYTES, max_size=30), BYTES)
def test_the_tokens_that_go_on_behind_a_prefix_add_up_by_their_next_byte(token_bytes, prefix):
    vocabulary = SortedVocabulary(TokenBytes(tuple(token_bytes), {}, {}))
    values = np.arange(1.0, len(token_bytes) + 1)
    sums = vocabulary.next_bytes(prefix, values[vocabulary.order])
    expected = {}
    for value, surface in zip(values, token_bytes, strict=True):
        if surface and surface.startswith(prefix) and len(surface) > len(prefix):
            byte = surface[len(prefix)]
            expected[byte] = expected.get(byte, 0) + value
    assert {byte: total for byte, total in enumerate(sums.tolist()) if total} == expected


def test_tokens_that_mean_the_end_are_no_bytes():
    token_bytes = TokenBytes((b"a", b"ab", b"\n", None), {}, {})
    assert SortedVocabulary(token_bytes, without={2}).order.tolist() == [0, 1]


def test_small_masses_are_not_lost_beside_large_ones():
    token_bytes = TokenBytes((b"a", b"bx", b"by"), {}, {})
    vocabulary = SortedVocabulary(token_bytes)
    sums = vocabulary.next_bytes(b"b", np.array([1.0, 1e-30, 3e-30]))
    assert sums[list(b"xy")].tolist() == [1e-30, 3e-30]


@pytest.mark.parametrize("name", ["llama-3.1-instruct", "mistral-7b-instruct-v0.3"])
def test_a_real_vocabulary_has_all_its_bytes_behind_nothing(name):
    from transformers import AutoTokenizer

    folder = SHARED / "tokenizers" / name
    if not folder.is_dir():
        pytest.skip(f"the real tokenizers are not at {folder.parent}")
    token_bytes = TokenBytes.read(AutoTokenizer.from_pretrained(folder), name)
    vocabulary = SortedVocabulary(token_bytes)
    ones = np.ones(len(vocabulary.order))
    counts = vocabulary.next_bytes(b"", ones)
    assert counts.sum() == len(vocabulary.order) == sum(1 for s in token_bytes.of if s)
    assert vocabulary.next_bytes(b" the", ones).sum() > 0
