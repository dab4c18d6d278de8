from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from adafuse.tokenization.text import UNFINISHED, Anchor, anchor
from adafuse.tokenization.token_bytes import TokenBytes
from tests.conftest import TOY_MODELS, loaded

NAMES = ("mistral", "llama", "qwen3", "internlm3")
TOKENIZERS = {}


def toy_tokenizer(name):
    if name not in TOKENIZERS:
        TOKENIZERS[name] = AutoTokenizer.from_pretrained(TOY_MODELS / name)
    return TOKENIZERS[name]


def ids_of(tokenizer, span):
    """The ids of a span as they continue the text "a"."""
    ids = tokenizer.encode("a" + span, add_special_tokens=False)
    return ids[len(tokenizer.encode("a", add_special_tokens=False)) :]


def added_in_steps(tokenizer, prompt, ids):
    """The text of `ids` behind `prompt`, committed whenever a character is finished."""
    committed = list(tokenizer(prompt)["input_ids"])
    text, pending = "", []
    place = anchor(tokenizer, committed)
    for token in ids:
        pending.append(token)
        added = place.added(pending)
        if not added.endswith(UNFINISHED):
            text, committed, pending = text + added, committed + pending, []
            place = anchor(tokenizer, committed)
    return text


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.text(max_size=60).filter(lambda text: UNFINISHED not in text))
def test_added_text_concatenates_to_the_text(name, text):
    tokenizer = toy_tokenizer(name)
    span = " a" + text
    ids = ids_of(tokenizer, span)
    assert added_in_steps(tokenizer, "Question: a", ids) == span


def test_added_text_of_real_tokenizers_concatenates_to_the_text(real_tokenizer, benchmark_texts):
    tokenizer = loaded(real_tokenizer)
    for text in benchmark_texts:
        span = " " + text[:300]
        ids = ids_of(tokenizer, span)
        assert added_in_steps(tokenizer, "Question: a", ids) == span


def test_the_first_space_is_kept_where_a_decoder_drops_it():
    tokenizer = toy_tokenizer("mistral")
    ids = tokenizer.encode("a b", add_special_tokens=False)
    prompt = tokenizer("a")["input_ids"]
    new = ids[len(tokenizer.encode("a", add_special_tokens=False)) :]
    assert anchor(tokenizer, prompt).added(new) == " b"


@pytest.mark.parametrize("word", ["für", "đem", "Mañana"])
def test_added_letters_that_a_byte_level_decoder_takes_for_bytes_are_text(word):
    tokenizer = AutoTokenizer.from_pretrained(TOY_MODELS / "llama")
    tokenizer.add_tokens([word])
    text = f" a {word}{word} 漢 {word}."
    ids = ids_of(tokenizer, text)
    assert tokenizer.convert_tokens_to_ids(word) in ids
    assert added_in_steps(tokenizer, f"Question: {word}", ids) == text


def test_an_anchor_inside_a_run_of_byte_tokens_is_widened_until_it_decodes():
    tokenizer = toy_tokenizer("mistral")
    ids = tokenizer.encode("a 漢字漢字", add_special_tokens=False)
    place = anchor(tokenizer, ids)
    assert UNFINISHED not in place.text
    assert place.added(tokenizer.encode(" b", add_special_tokens=False)).strip() == "b"


@pytest.mark.parametrize("character", ["é", "བ", "🦜"])
def test_a_long_run_of_byte_tokens_is_cut_between_characters(character):
    tokenizer, size = toy_tokenizer("mistral"), len(character.encode())
    ids = ids_of(tokenizer, character * 40)
    assert len(ids) == 40 * size
    for count in range(40):
        assert anchor(tokenizer, ids[: count * size]).added(ids[count * size :]) == (
            character * (40 - count)
        )


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.text(max_size=30).filter(lambda text: UNFINISHED not in text))
def test_the_first_ids_hold_the_characters_whose_bytes_they_have(name, text):
    tokenizer = toy_tokenizer(name)
    span = " a" + text
    ids = ids_of(tokenizer, span)
    place, of = anchor(tokenizer, tokenizer("Question: a")["input_ids"]), read_bytes(name).of
    for count in range(len(ids) + 1):
        held = b"".join(of[index] for index in ids[:count]).decode(errors="ignore")
        assert place.length_in(span, ids, count) == len(held)
        assert len(place.begun(ids[:count])) - len(held) in (0, 1)


@cache
def read_bytes(name):
    return TokenBytes.read(toy_tokenizer(name), name)


class Words:
    """A tokenizer whose ids are the texts that they decode to."""

    def decode(self, ids, **settings):
        return "".join(ids)


@pytest.mark.parametrize(
    ("ids", "text", "lengths"),
    [
        (["Paris", " is", " a", " city"], " Paris is a city", [0, 6, 9, 11, 16]),  # a template's
        ([" Paris", " is"], "Paris is", [0, 5, 8]),
        ([" a", " \u0915\u093c", " b", " c"], " a \u0958 b c", [0, 2, 4, 6, 8]),  # composed
        (["\n\n", "  ", "end"], "\n\n  end", [0, 2, 4, 7]),
        ([" a", " \ufffd\ufffd", " b"], " a \ufffd b", [0, 2, 2, 6]),  # no character
        ([" a", " b\n", "c"], " a b", [0, 2, 4, 4]),  # cut by a stop string
    ],
)
def test_ids_hold_the_text_around_what_they_write_otherwise(ids, text, lengths):
    place = Anchor(Words(), (), "")
    assert [place.length_in(text, ids, count) for count in range(len(ids) + 1)] == lengths
