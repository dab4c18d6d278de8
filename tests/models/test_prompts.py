import pytest
from transformers import AutoTokenizer

from adafuse.errors import UserError
from adafuse.records.result import Chat, Turn
from adafuse.tokenization.prompts import check_chat, prompt_ids
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


HISTORY = (
    Turn("system", "Be brief."),
    Turn("user", "Who?"),
    Turn("assistant", "Paila."),
    Turn("user", "Where?"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_history_is_put_into_the_template_of_each_model(name):
    tokenizer = tokenizer_of(name)
    said = [{"role": turn.role, "content": turn.content} for turn in HISTORY]
    own = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    ids = prompt_ids(tokenizer, Chat(HISTORY), chat=False)
    assert ids == tokenizer.encode(own, add_special_tokens=False)


def test_one_turn_of_the_user_is_a_prompt_in_the_template():
    tokenizer = tokenizer_of("qwen3")
    chat = Chat((Turn("user", "Who?"),))
    assert prompt_ids(tokenizer, chat, chat=False) == prompt_ids(tokenizer, "Who?", chat=True)


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_that_was_begun_is_left_open(name):
    tokenizer = tokenizer_of(name)
    begun = Chat((*HISTORY, Turn("assistant", "In the")), continues=True)
    text = tokenizer.decode(prompt_ids(tokenizer, begun, chat=False))
    assert text.endswith("In the")
    assert text.count("Where?") == 1


def test_a_template_without_a_system_turn_gets_its_text_from_the_user(caplog):
    tokenizer = tokenizer_of("mistral")
    refusing = "{% if message['role'] == 'system' %}{{ raise_exception('none') }}{% endif %}"
    tokenizer.chat_template = tokenizer.chat_template.replace("%}{% if", "%}" + refusing + "{% if")
    joined = Chat((Turn("user", "Be brief.\n\nWho?"), *HISTORY[2:]))
    ids = prompt_ids(tokenizer, Chat(HISTORY), chat=False)
    assert ids == prompt_ids(tokenizer_of("mistral"), joined, chat=False)
    assert "takes no system turn" in caplog.text


def test_a_template_that_refuses_the_turns_themselves_says_so():
    tokenizer = tokenizer_of("mistral")
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    for turns in (HISTORY, HISTORY[1:]):
        with pytest.raises(UserError, match=r"does not take this prompt \(roles must alternate\)"):
            prompt_ids(tokenizer, Chat(turns), chat=False)


def test_an_empty_text_begins_with_the_start_token_or_where_another_ended():
    assert prompt_ids(tokenizer_of("llama"), "", chat=False) == [tokenizer_of("llama").bos_token_id]
    assert prompt_ids(tokenizer_of("qwen3"), "", chat=False) == [tokenizer_of("qwen3").eos_token_id]
