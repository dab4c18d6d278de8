import json
import re

import pytest

from adafuse.errors import UserError
from adafuse.records.result import Chat, Turn, as_prompt, as_text, letters, question_of
from adafuse.records.views import model_names

ASKED = (Turn("system", "Be brief."), Turn("user", "Who?"))


def test_the_question_of_a_chat_is_what_the_user_said_last():
    assert question_of(Chat((*ASKED, Turn("assistant", "She."), Turn("user", "When?")))) == "When?"
    assert question_of("Who?") == "Who?"


def test_the_letters_of_all_turns_count():
    assert letters(Chat(ASKED)) == len("Be brief.Who?")
    assert letters("Who?") == 4


MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]


def test_messages_are_turns():
    assert Chat(MESSAGES) == Chat(ASKED)
    assert as_prompt(MESSAGES, "it") == Chat(ASKED)
    assert json.loads(as_text(Chat(MESSAGES))) == MESSAGES
    assert as_text("Who?") == "Who?"


@pytest.mark.parametrize("given", [None, b"Who?", 3, [], {"role": "user", "content": "Who?"}])
def test_what_is_no_prompt_is_refused_by_its_name(given):
    with pytest.raises(UserError, match=re.escape(f"prompts[2] is {given!r}; give a text, a Ch")):
        as_prompt(given, "prompts[2]")


@pytest.mark.parametrize("given", ["Who?", {"role": "user"}, {"role": "user", "content": None}])
def test_what_is_no_message_is_refused(given):
    with pytest.raises(UserError, match=re.escape(f"{given!r} is not a message; give its role")):
        Chat([given])


@pytest.mark.parametrize(
    ("turns", "continues", "sentence"),
    [
        ((), False, "a chat has no turns; give at least a turn of the user"),
        ((Turn("tool", "x"),), False, "unknown role 'tool'; known are: system, user, assistant"),
        (ASKED, True, "continues a turn of 'user'; only a turn of the assistant"),
    ],
)
def test_what_is_no_conversation_is_refused(turns, continues, sentence):
    with pytest.raises(UserError, match=sentence):
        Chat(turns, continues)


def test_a_turn_of_the_assistant_at_the_end_is_continued_unless_that_is_said_otherwise():
    turns = [*ASKED, Turn("assistant", "She")]
    assert Chat(turns).continues
    assert not Chat(turns, continues=False).continues
    assert not Chat(ASKED).continues


def test_models_of_one_path_are_told_apart_by_their_numbers():
    assert model_names(["a/base", "b/small"]) == ["base", "small"]
    assert model_names(["a/base", "b/base"]) == ["a/base", "b/base"]
    assert model_names(["a/base", "b/small", "a/base"]) == ["base (0)", "small", "base (2)"]
