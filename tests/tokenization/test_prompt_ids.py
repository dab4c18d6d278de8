"""A prompt is tokenized as it stands: one start token, no end token, every turn, one date."""

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from adafuse.errors import UserError
from adafuse.records.result import CHAT_DATE, Chat, Turn
from adafuse.tokenization.prompts import prompt_ids, start_ids
from adafuse.tokenization.text import ModelTokenizer
from tests.conftest import toy_path

TEXT = "Question: Who?\nAnswer:"
TURNS = (Turn("system", "Be brief."), Turn("user", "Who?"))


@pytest.fixture
def llama():
    return AutoTokenizer.from_pretrained(toy_path("llama"))


def around(tokenizer, single, *tokens):
    """Let a tokenizer put special tokens around a text."""
    ids = [(token, tokenizer.convert_tokens_to_ids(token)) for token in tokens]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=single, special_tokens=ids
    )
    return [index for _, index in ids]


def test_an_end_token_that_a_tokenizer_appends_does_not_end_the_prompt(llama):
    alone = llama.encode(TEXT, add_special_tokens=False)
    start, end = (
        around(llama, f"{llama.bos_token} $A {llama.eos_token}", "<s>", "</s>")
        if (llama.bos_token == "<s>")
        else around(
            llama, f"{llama.bos_token} $A {llama.eos_token}", llama.bos_token, llama.eos_token
        )
    )
    assert llama(TEXT)["input_ids"][-1] == end
    assert prompt_ids(llama, TEXT, chat=False) == [start, *alone]
    assert prompt_ids(llama, "", chat=False) == [start]


def test_an_end_token_asked_for_in_the_settings_does_not_end_the_prompt(llama):
    before = prompt_ids(llama, TEXT, chat=False)
    llama.add_bos_token, llama.add_eos_token = True, True
    assert llama(TEXT)["input_ids"][-1] == llama.eos_token_id
    assert prompt_ids(llama, TEXT, chat=False) == before


def test_two_tokens_before_a_text_are_both_kept_once(llama):
    first, second = llama.bos_token, llama.eos_token
    start = around(llama, f"{first} {second} $A", first, second)
    alone = llama.encode(TEXT, add_special_tokens=False)
    assert start_ids(llama) == start
    assert prompt_ids(llama, TEXT, chat=False) == [*start, *alone]
    assert prompt_ids(llama, f"{first}{second}{TEXT}", chat=False) == [*start, *alone]


@pytest.mark.parametrize("times", [1, 2])
def test_a_start_token_in_a_text_is_the_only_one(llama, times):
    text = llama.bos_token * times + TEXT
    assert prompt_ids(llama, text, chat=False) == prompt_ids(llama, TEXT, chat=False)


def test_a_start_token_that_only_the_text_has_stays():
    tokenizer = AutoTokenizer.from_pretrained(toy_path("qwen3"))
    tokenizer.bos_token = tokenizer.eos_token
    alone = tokenizer.encode(TEXT, add_special_tokens=False)
    ids = prompt_ids(tokenizer, tokenizer.bos_token + TEXT, chat=False)
    assert ids == [tokenizer.bos_token_id, *alone]


def test_a_rendered_template_is_the_same_prompt_as_its_conversation(llama):
    chat = Chat((Turn("user", "Who?"),))
    rendered = llama.apply_chat_template(
        [{"role": "user", "content": "Who?"}], tokenize=False, add_generation_prompt=True
    )
    for text in (rendered, llama.bos_token + rendered.removeprefix(llama.bos_token)):
        assert prompt_ids(llama, text, chat=False) == prompt_ids(llama, chat, chat=False)


def test_a_document_that_begins_with_start_tokens_has_one(llama):
    model = ModelTokenizer(name="llama", tokenizer=llama, end_ids={llama.eos_token_id: "tokenizer"})
    doubled = model.document_ids(llama.bos_token * 2 + "Who?")
    assert doubled == model.document_ids("Who?")


LOOP = (
    "{% for message in messages %}{% if CONDITION %}{{ message.content | trim }}\n{% endif %}"
    "{% endfor %}"
)


def test_a_system_turn_that_a_template_drops_is_said_by_the_user(llama, caplog):
    llama.chat_template = LOOP.replace("CONDITION", "message.role != 'system'")
    text = llama.decode(prompt_ids(llama, Chat(TURNS), chat=False), skip_special_tokens=True)
    assert text.strip() == "Be brief.\n\nWho?"
    assert "takes no system turn" in caplog.text


def test_a_system_turn_that_a_template_changes_is_not_said_by_the_user(llama, caplog):
    """As of models with /no_think there: without the turn they would think."""
    llama.chat_template = (
        "{% for message in messages %}{{ message.content | replace('/no_think', '') }}{% endfor %}"
        "{{ '' if '/no_think' in messages[0].content else '<think>' }}"
    )
    switched = (Turn("system", "Be brief. /no_think"), Turn("user", "Who?"))
    with pytest.raises(UserError, match=r"leaves out turn 1 \(system: 'Be brief. /no_think'\)"):
        prompt_ids(llama, Chat(switched), chat=False)
    assert not caplog.text


DROPPING = {
    "the last turn only": LOOP.replace("CONDITION", "loop.last"),
    "no later system turn": LOOP.replace("CONDITION", "message.role != 'system' or loop.first"),
    "no short turn": LOOP.replace("CONDITION", "message.content | length > 3"),
}


@pytest.mark.parametrize("template", DROPPING.values(), ids=DROPPING)
def test_a_template_that_drops_another_turn_is_refused(llama, template):
    llama.chat_template = template
    turns = (Turn("user", "Who?"), Turn("system", "Now in French."), Turn("user", "Où?"))
    with pytest.raises(UserError, match=r"leaves out turn \d \(.*move it into another turn"):
        prompt_ids(llama, Chat(turns), chat=False)


def test_a_turn_that_says_what_another_one_says_is_missed_too(llama):
    llama.chat_template = LOOP.replace("CONDITION", "loop.last")
    turns = (Turn("user", "Who?"), Turn("assistant", "Paila."), Turn("user", "Who?"))
    with pytest.raises(UserError, match="leaves out turn 1"):
        prompt_ids(llama, Chat(turns), chat=False)


def test_thoughts_of_earlier_answers_may_be_left_out(llama):
    llama.chat_template = (
        "{% for message in messages %}{{ message.content.split('</think>')[-1] }}\n{% endfor %}"
    )
    turns = (
        Turn("user", "Who?"),
        Turn("assistant", "<think>Hm</think>Paila."),
        Turn("user", "Why?"),
    )
    text = llama.decode(prompt_ids(llama, Chat(turns), chat=False), skip_special_tokens=True)
    assert "Hm" not in text
    assert "Paila." in text


@pytest.mark.parametrize("begun", ["Answer: ", "  Answer:\n", "e", " ", ""])
def test_all_models_continue_a_turn_at_the_same_text(llama, begun):
    chat = Chat((Turn("user", "Who?"), Turn("assistant", begun)), continues=True)
    ends = set()
    for trim in ("", "| trim"):
        llama.chat_template = (
            "{% for message in messages %}<{{ message.role }}>{{ message.content "
            + trim
            + " }}<end>{% endfor %}"
        )
        text = llama.decode(prompt_ids(llama, chat, chat=False), skip_special_tokens=True)
        ends.add(text.rpartition("<assistant>")[2])
    assert ends == {begun}


def test_a_template_that_rewrites_the_turn_that_is_continued_is_refused(llama):
    llama.chat_template = "{% for message in messages %}{{ message.content | upper }}{% endfor %}"
    chat = Chat((Turn("user", "WHO?"), Turn("assistant", "An")), continues=True)
    with pytest.raises(UserError, match="changes the turn that is continued, 'An'"):
        prompt_ids(llama, chat, chat=False)


def test_a_template_sees_one_day_whenever_it_is_rendered(llama):
    llama.chat_template = "{{ strftime_now('%d %b %Y %H:%M') }} {{ messages[0].content }}"
    decoded = [
        llama.decode(prompt_ids(llama, "Who?", chat=True, **day), skip_special_tokens=True)
        for day in ({}, {"today": "2026-01-31"})
    ]
    assert CHAT_DATE == "2024-07-26"
    assert decoded == ["26 Jul 2024 00:00 Who?", "31 Jan 2026 00:00 Who?"]


@pytest.mark.parametrize("name", ["llama", "mistral"])
@pytest.mark.parametrize("before", ["\n{0}", " {0} {0}", "{0}\n{0}"])
def test_whitespace_around_start_tokens_hides_none_of_them(name, before):
    tokenizer = AutoTokenizer.from_pretrained(toy_path(name))
    start = tokenizer.bos_token
    ids = prompt_ids(tokenizer, before.format(start) + "\nWho?", chat=False)
    assert ids == prompt_ids(tokenizer, start + "\nWho?", chat=False)
    assert ids.count(tokenizer.bos_token_id) == 1


@pytest.mark.parametrize("before", ["{0}", "{0}{0}", " {0}"])
def test_a_start_token_is_not_what_a_user_says(before):
    tokenizer = AutoTokenizer.from_pretrained(toy_path("llama"))
    text = before.format(tokenizer.bos_token) + "Who?"
    assert prompt_ids(tokenizer, text, chat=True) == prompt_ids(tokenizer, "Who?", chat=True)


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen3", "internlm3"])
def test_a_rendered_template_is_not_put_into_the_template_again(name):
    tokenizer = AutoTokenizer.from_pretrained(toy_path(name))
    said = [{"role": "user", "content": "Who?"}]
    text = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    with pytest.raises(UserError, match="a chat template already; give its messages"):
        prompt_ids(tokenizer, text, chat=True)


@pytest.mark.parametrize("template", ["<|user|>\n", "[INST] "])
def test_marks_that_are_no_tokens_tell_a_rendered_template_as_well(llama, template):
    llama.chat_template = "{{ bos_token }}" + template + "{{ messages[0]['content'] }}"
    said = [{"role": "user", "content": "Who?"}]
    text = llama.apply_chat_template(said, tokenize=False)
    for rendered in (text, text.removeprefix(llama.bos_token)):
        with pytest.raises(UserError, match="a chat template already"):
            prompt_ids(llama, rendered, chat=True)


@pytest.mark.parametrize("name", ["llama", "mistral", "internlm3", "qwen3"])
@pytest.mark.parametrize("before", ["\n{0}", " {0} {0}", "{0}\n{0}"])
def test_a_document_has_one_start_token_whatever_whitespace_is_around_it(name, before):
    tokenizer = AutoTokenizer.from_pretrained(toy_path(name))
    model = ModelTokenizer(name=name, tokenizer=tokenizer, end_ids={tokenizer.eos_token_id: "t"})
    start = tokenizer.bos_token or tokenizer.eos_token
    document = model.document_ids(before.format(start) + "\nWho?")
    assert document == model.document_ids(start + "\nWho?")
    assert not set(document[0]) & set(document[1])


def test_whitespace_hides_no_start_token_that_only_the_text_has():
    tokenizer = AutoTokenizer.from_pretrained(toy_path("qwen3"))
    tokenizer.bos_token = tokenizer.eos_token
    once = prompt_ids(tokenizer, tokenizer.bos_token + "\nWho?", chat=False)
    assert once.count(tokenizer.bos_token_id) == 1
    for before in ("\n{0}", " {0} {0}"):
        text = before.format(tokenizer.bos_token) + "\nWho?"
        assert prompt_ids(tokenizer, text, chat=False) == once
