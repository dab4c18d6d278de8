import pytest

from adafuse.errors import UserError
from adafuse.records import Chat, Turn, letters, question_of

ASKED = (Turn("system", "Be brief."), Turn("user", "Who?"))


def test_the_question_of_a_chat_is_what_the_user_said_last():
    assert question_of(Chat((*ASKED, Turn("assistant", "She."), Turn("user", "When?")))) == "When?"
    assert question_of("Who?") == "Who?"


def test_the_letters_of_all_turns_count():
    assert letters(Chat(ASKED)) == len("Be brief.Who?")
    assert letters("Who?") == 4


@pytest.mark.parametrize(
    ("turns", "continues", "sentence"),
    [
        ((), False, "a chat has no turns; give at least what the user says"),
        ((Turn("tool", "x"),), False, "unknown role 'tool'; known are: system, user, assistant"),
        (ASKED, True, "continues a turn of 'user'; only what the assistant began to say"),
    ],
)
def test_what_is_no_conversation_is_refused(turns, continues, sentence):
    with pytest.raises(UserError, match=sentence):
        Chat(turns, continues)
