import pytest

from adafuse.errors import UserError
from adafuse.lm_eval.requests import read_prompt, write_chat
from adafuse.records.result import Chat, Turn

HISTORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": 'Who, "exactly"?\n{"a": 1}'},
    {"role": "assistant", "content": "Größe"},
]


@pytest.mark.parametrize("continues", [True, False])
def test_a_history_comes_back_as_it_was(continues):
    turns = tuple(Turn(each["role"], each["content"]) for each in HISTORY)
    assert read_prompt(write_chat(HISTORY, continues=continues)) == Chat(turns, continues)


@pytest.mark.parametrize("text", ["", "Who?", '{"question": "Who?"}', '[{"role": "user"}]'])
def test_other_texts_are_prompts_as_they_stand(text):
    assert read_prompt(text) == text


def test_turns_that_hold_no_text_are_refused():
    picture = [{"role": "user", "content": [{"type": "image"}]}]
    with pytest.raises(UserError, match="a turn of 'user' holds list, not text"):
        write_chat(picture, continues=False)


def test_unknown_roles_are_refused():
    with pytest.raises(UserError, match="unknown role 'tool'"):
        write_chat([{"role": "tool", "content": "x"}], continues=False)
