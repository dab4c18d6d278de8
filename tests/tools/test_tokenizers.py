"""The four tokenizers: lossless, different, and safe for spans written by other models."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import adafuse.toy
from tools.toy.records import MODEL_NAMES
from tools.toy.tokenizers import VOCABULARIES
from tools.toy.train import train_tokenizer

MODELS = Path(adafuse.toy.__path__[0]) / "models"
# U+2581 stands for the space in SentencePiece vocabularies and is read back as one.
TEXTS = st.text(max_size=40).filter(lambda text: "▁" not in text)
SPACES = st.sampled_from([" ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\x1c", "\u2028"])


@cache
def load(name: str) -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(MODELS / name)


def plain(name: str, text: str) -> list[int]:
    return load(name).encode(text, add_special_tokens=False)


def read(name: str, ids: list[int]) -> str:
    return load(name).decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("name", MODEL_NAMES)
@settings(max_examples=100, deadline=None)
@given(text=TEXTS)
def test_any_text_is_encoded_and_decoded_without_loss(name: str, text: str) -> None:
    assert read(name, plain(name, text)) == text


@pytest.mark.parametrize("name", MODEL_NAMES)
@pytest.mark.parametrize(
    "text", ["", " ", "  a", "a\n\n b\t", "<0x41>", "Ünï 日本 😀", "e\u0301", "1,234.5", "don't"]
)
def test_awkward_texts_are_lossless(name: str, text: str) -> None:
    assert read(name, plain(name, text)) == text


@pytest.mark.parametrize("name", MODEL_NAMES)
@settings(max_examples=100, deadline=None)
@given(space=SPACES, text=TEXTS)
def test_anchor_a_stands_before_spans_that_start_with_white_space(
    name: str, space: str, text: str
) -> None:
    anchor = plain(name, "a")
    assert plain(name, "a" + space + text)[: len(anchor)] == anchor


@pytest.mark.parametrize("name", MODEL_NAMES)
@settings(max_examples=100, deadline=None)
@given(text=TEXTS.filter(lambda text: text and not text[0].isspace()))
def test_anchor_newline_stands_before_all_other_spans(name: str, text: str) -> None:
    anchor = plain(name, "\n")
    assert plain(name, "\n" + text)[: len(anchor)] == anchor


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_start_end_and_pad_tokens_are_as_in_the_real_family(name: str) -> None:
    tokenizer, vocabulary = load(name), VOCABULARIES[name]
    ids = tokenizer("a")["input_ids"]
    starts = [tokenizer.bos_token_id] if vocabulary.start else []
    assert ids == starts + plain(name, "a")
    assert (tokenizer.bos_token, tokenizer.eos_token) == (vocabulary.start, vocabulary.end)
    assert tokenizer.pad_token == vocabulary.pad


def test_vocabularies_differ_in_size_and_content() -> None:
    assert len({len(load(name)) for name in MODEL_NAMES}) == len(MODEL_NAMES)
    assert all(500 <= len(load(name)) <= 1500 for name in MODEL_NAMES)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_chat_template_starts_as_the_real_one_does(name: str) -> None:
    tokenizer, vocabulary = load(name), VOCABULARIES[name]
    messages = [{"role": "user", "content": "Hello"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert "Hello" in text
    assert text.count(vocabulary.start) == 1 if vocabulary.start else text.startswith("<|im_start")


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_training_a_tokenizer_again_gives_the_committed_one(name: str) -> None:
    assert train_tokenizer(name).get_vocab() == load(name).get_vocab()
