import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adafuse.tokenization.text import span_encoder
from tests.conftest import SHARED, loaded
from tests.tokenization.test_added import NAMES, toy_tokenizer


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.sampled_from([" ", "\n", "", "\n\n "]),
    st.text(alphabet=st.characters(exclude_categories=["Cs", "Co", "Cn"]), min_size=1, max_size=20),
)
def test_foreign_ids_decode_to_the_span(name, space, word):
    tokenizer = toy_tokenizer(name)
    span = space + word
    ids = span_encoder(tokenizer, name)(span)
    before = tokenizer.encode("a" if span[0].isspace() else "\n", add_special_tokens=False)
    whole = tokenizer.decode([*before, *ids], skip_special_tokens=False)
    assert whole.endswith(span)


def test_an_empty_span_has_no_ids():
    assert span_encoder(toy_tokenizer("llama"), "llama")("") == ()


@pytest.mark.parametrize("name", NAMES)
def test_what_reads_like_a_special_token_is_spelled(name):
    tokenizer = toy_tokenizer(name)
    for token in tokenizer.all_special_tokens:
        ids = span_encoder(tokenizer, name)(f" old{token} new")
        assert not set(ids) & set(tokenizer.all_special_ids)
        assert tokenizer.decode(ids, skip_special_tokens=False).endswith(f"old{token} new")
    index = tokenizer.eos_token_id  # a mark around thoughts stays one
    assert index in span_encoder(tokenizer, name, marks=[index])(f" a{tokenizer.eos_token}")


def test_a_merge_with_the_anchor_names_tokenizer_and_span():
    class Merging:
        added_tokens_decoder, all_special_ids = {}, []

        def encode(self, text, add_special_tokens):
            return [7] if text == "a" else [9, 8]

    with pytest.raises(ValueError, match=r"tokenizer of odd merges the span ' x'"):
        span_encoder(Merging(), "odd")(" x")


def word_spans(text, length):
    """Spans of `length` words with the whitespace before them."""
    import re

    words = re.findall(r"\s*\S+", text)
    return ["".join(words[i : i + length]) for i in range(0, max(1, len(words) - length), 3)]


def test_real_tokenizers_never_refuse_a_span_at_word_boundaries(real_tokenizer, benchmark_texts):
    encode = span_encoder(loaded(real_tokenizer), real_tokenizer.name)
    for text in benchmark_texts:
        for length in (1, 2, 3):
            for span in word_spans(text[:400], length)[1:]:
                assert encode(span)


def test_golden_vectors_of_real_tokenizers_hold(real_tokenizer):
    golden = json.loads((SHARED / "tokenizers" / "golden_vectors.json").read_text())
    if real_tokenizer.name not in golden["ids"]:
        pytest.skip(f"no golden vectors for {real_tokenizer.name}")
    tokenizer = loaded(real_tokenizer)
    for text, ids in zip(golden["texts"], golden["ids"][real_tokenizer.name], strict=True):
        assert tokenizer.encode(text, add_special_tokens=False) == ids
