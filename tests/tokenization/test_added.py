from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from adafuse.tokenization.text import UNFINISHED, anchor
from tests.conftest import TOY_MODELS, loaded

NAMES = ("mistral", "llama", "qwen3", "internlm3")
TOKENIZERS = {}


def toy_tokenizer(name):
    if name not in TOKENIZERS:
        TOKENIZERS[name] = AutoTokenizer.from_pretrained(TOY_MODELS / name)
    return TOKENIZERS[name]


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
    ids = tokenizer.encode("a" + span, add_special_tokens=False)
    ids = ids[len(tokenizer.encode("a", add_special_tokens=False)) :]
    assert added_in_steps(tokenizer, "Question: a", ids) == span


def test_added_text_of_real_tokenizers_concatenates_to_the_text(real_tokenizer, benchmark_texts):
    tokenizer = loaded(real_tokenizer)
    for text in benchmark_texts:
        span = " " + text[:300]
        ids = tokenizer.encode("a" + span, add_special_tokens=False)
        ids = ids[len(tokenizer.encode("a", add_special_tokens=False)) :]
        assert added_in_steps(tokenizer, "Question: a", ids) == span


def test_the_first_space_is_kept_where_a_decoder_drops_it():
    tokenizer = toy_tokenizer("mistral")
    ids = tokenizer.encode("a b", add_special_tokens=False)
    prompt = tokenizer("a")["input_ids"]
    new = ids[len(tokenizer.encode("a", add_special_tokens=False)) :]
    assert anchor(tokenizer, prompt).added(new) == " b"


def test_an_anchor_inside_a_run_of_byte_tokens_is_widened_until_it_decodes():
    tokenizer = toy_tokenizer("mistral")
    ids = tokenizer.encode("a 漢字漢字", add_special_tokens=False)
    place = anchor(tokenizer, ids)
    assert UNFINISHED not in place.text
    assert place.added(tokenizer.encode(" b", add_special_tokens=False)).strip() == "b"
