from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from adafuse.errors import UserError
from adafuse.tokenization.token_bytes import TokenBytes
from tests.conftest import SHARED, loaded
from tests.tokenization.test_added import NAMES, toy_tokenizer


@cache
def toy_surfaces(name):
    return TokenBytes.read(toy_tokenizer(name), name)


@cache
def real(folder):
    """A real tokenizer and the bytes of its tokens."""
    tokenizer = loaded(folder)
    return tokenizer, TokenBytes.read(tokenizer, folder.name)


def joined(token_bytes, tokenizer, text):
    """The bytes of the tokens of `text`, without the space that some tokenizers put first."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    dummy = tokenizer.encode("a", add_special_tokens=False)[:1]
    has_dummy = b"".join(token_bytes.of[token] for token in dummy).startswith(b" ")
    return b"".join(token_bytes.of[token] for token in ids).removeprefix(b" " * has_dummy)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\u2581")),
)
def test_the_surfaces_of_a_text_join_to_the_text(name, text):
    tokenizer = toy_tokenizer(name)
    assume(not any(special in text for special in tokenizer.all_special_tokens))
    assert joined(toy_surfaces(name), tokenizer, text) == text.encode()


def test_the_surfaces_of_real_texts_join_to_them(real_tokenizer, benchmark_texts):
    tokenizer, token_bytes = real(real_tokenizer)
    for text in benchmark_texts:
        assert joined(token_bytes, tokenizer, text) == text.encode()


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_has_a_token_and_special_tokens_have_no_bytes(name):
    token_bytes, tokenizer = toy_surfaces(name), toy_tokenizer(name)
    assert len(token_bytes.of) == len(tokenizer)
    assert {token_bytes.of[token] for token in token_bytes.bytes.values()} == {
        bytes([byte]) for byte in range(256)
    }
    assert [token_bytes.of[token] for token in tokenizer.all_special_ids] == [None] * len(
        tokenizer.all_special_ids
    )


def test_a_piece_is_found_before_a_byte_token_and_a_byte_token_for_a_byte():
    token_bytes, vocabulary = toy_surfaces("mistral"), toy_tokenizer("mistral").get_vocab()
    assert token_bytes.ids[b"A"] == vocabulary["A"]
    assert token_bytes.bytes[0x41] == vocabulary["<0x41>"]
    assert token_bytes.of[vocabulary["<0x41>"]] == token_bytes.of[vocabulary["A"]] == b"A"


def test_added_tokens_that_are_not_special_are_their_own_text():
    tokenizer = AutoTokenizer.from_pretrained(toy_tokenizer("llama").name_or_path)
    tokenizer.add_tokens(["Größe\u2581"])
    assert TokenBytes.read(tokenizer, "llama").of[-1] == "Größe\u2581".encode()


@pytest.mark.parametrize("content", ["\u2581\u2581", "\u2581Größe", "<0x41>"])
def test_a_mark_stands_for_a_space_in_added_tokens_as_it_does_in_texts(content):
    tokenizer = AutoTokenizer.from_pretrained(toy_tokenizer("mistral").name_or_path)
    tokenizer.add_tokens([content])
    token = tokenizer.convert_tokens_to_ids(content)
    before = tokenizer.encode("a", add_special_tokens=False)
    text = tokenizer.decode([*before, token]).removeprefix(tokenizer.decode(before))
    assert TokenBytes.read(tokenizer, "mistral").of[token] == text.encode()


def test_a_tokenizer_without_bytes_is_refused_by_one_of_its_tokens():
    vocabulary = {"[UNK]": 0, "play": 1, "##ing": 2}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    with pytest.raises(UserError, match=r"tokenizer of 'bert' .*such as '##ing'; use a byte-level"):
        TokenBytes.read(PreTrainedTokenizerFast(tokenizer_object=backend), "bert")


def test_a_byte_level_piece_outside_the_alphabet_is_named():
    backend = Tokenizer(models.BPE({"a": 0, "漢": 1}, []))
    backend.decoder = decoders.ByteLevel()
    with pytest.raises(UserError, match=r"token '漢' of 'odd' has the character '漢'"):
        TokenBytes.read(PreTrainedTokenizerFast(tokenizer_object=backend), "odd")


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        ("llama-3.1-instruct", "mistral-7b-instruct-v0.3", 29_110),
        ("llama-3.1-instruct", "qwen2.5-qwen3", 109_566),
        ("qwen2.5-qwen3", "mistral-7b-instruct-v0.3", 29_234),
    ],
)
def test_real_vocabularies_have_this_many_surfaces_in_common(left, right, common):
    folders = [SHARED / "tokenizers" / name for name in (left, right)]
    if not all(folder.is_dir() for folder in folders):
        pytest.skip(f"the real tokenizers are not at {folders[0].parent}")
    one, other = (real(folder)[1] for folder in folders)
    assert len(one.ids.keys() & other.ids.keys()) == common
