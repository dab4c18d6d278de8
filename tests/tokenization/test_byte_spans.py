from functools import cache

import pytest

from adafuse.models.language_model import LoadedModel
from adafuse.tokenization.text import encode_bytes
from tests.tokenization.test_added import NAMES, toy_tokenizer


def bare_model(tokenizer, name):
    """A model without a network: nothing here runs one."""
    ends = frozenset()
    return LoadedModel(name=name, network=None, tokenizer=tokenizer, end_ids=ends, context=10_000)


@cache
def toy_model(name):
    """A toy tokenizer as a model without a network."""
    return bare_model(toy_tokenizer(name), name)


@pytest.mark.parametrize("name", NAMES)
def test_text_that_comes_back_is_encoded_as_a_span(name):
    model = toy_model(name)
    assert encode_bytes(model, b" the red house") == model.encode_span(" the red house")


@pytest.mark.parametrize("name", NAMES)
def test_only_the_character_that_does_not_come_back_is_written_by_itself(name):
    model = toy_model(name)
    special = model.tokenizer.eos_token
    ids = encode_bytes(model, f" the{special} the".encode())
    assert b"".join(model.token_bytes.of[token] for token in ids) == f" the{special} the".encode()
    assert ids[: len(model.encode_span(" the"))] == model.encode_span(" the")
    assert ids[-1:] == model.encode_span(" the")[-1:]


def test_text_behind_an_odd_byte_is_encoded_as_text():
    model = toy_model("mistral")
    odd = model.token_bytes.bytes[0x80]
    assert encode_bytes(model, b"\x80 the") == (odd, *model.encode_span(" the"))


def test_a_byte_without_a_token_is_told_of():
    class Letters:
        added_tokens_decoder, all_special_ids = {}, []
        pad_token = pad_token_id = None
        backend_tokenizer = toy_tokenizer("llama").backend_tokenizer

        def __len__(self):
            return 1

        def get_vocab(self):
            return {"a": 0}

        def convert_ids_to_tokens(self, ids):
            return ["a"]

        def encode(self, text, add_special_tokens):
            return []

    with pytest.raises(ValueError, match="tokenizer of letters has no token for byte 0xff"):
        encode_bytes(bare_model(Letters(), "letters"), b"\xff")
