import pytest
from transformers import AutoTokenizer

from adafuse.errors import UserError
from adafuse.models.prompts import check_chat, prompt_ids
from tests.conftest import toy_path

NAMES = ("mistral", "llama", "qwen3", "internlm3")


def tokenizer_of(name):
    """The tokenizer of a toy model."""
    return AutoTokenizer.from_pretrained(toy_path(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chat", [False, True])
def test_there_is_exactly_one_start_token_where_the_tokenizer_has_one(name, chat):
    tokenizer = tokenizer_of(name)
    ids = prompt_ids(tokenizer, "Question: Who?\nAnswer:", chat=chat)
    adds_start = tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id
    assert ids.count(tokenizer.bos_token_id) == (1 if adds_start else 0)
    if adds_start:
        assert ids[0] == tokenizer.bos_token_id


@pytest.mark.parametrize("name", NAMES)
def test_raw_text_is_what_the_tokenizer_gives_by_default(name):
    tokenizer = tokenizer_of(name)
    text = "Question: Wer grüßt?\nAnswer:"
    assert prompt_ids(tokenizer, text, chat=False) == tokenizer(text)["input_ids"]


def test_a_start_token_is_added_to_a_template_that_forgets_it_and_kept_single():
    tokenizer = tokenizer_of("llama")
    for template in ("{{ messages[0].content }}", "{{ bos_token * 2 }}{{ messages[0].content }}"):
        tokenizer.chat_template = template
        ids = prompt_ids(tokenizer, "hello", chat=True)
        assert ids == tokenizer("hello")["input_ids"]


def test_chat_needs_a_template():
    tokenizer = tokenizer_of("llama")
    tokenizer.chat_template = None
    with pytest.raises(UserError, match="has no chat template; run it without chat"):
        check_chat(tokenizer, "llama")
