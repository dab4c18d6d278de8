"""Conversations on their way through the harness, which passes prompts as strings.

A chat is written as JSON that names no model's template: each member reads it back and puts it
into its own.
"""

import json
from collections.abc import Mapping, Sequence

from adafuse.errors import UserError
from adafuse.prompt import Chat, Prompt, Turn

_MARK = '{"adafuse_chat": '


def write_chat(history: Sequence[Mapping[str, str]], *, continues: bool) -> str:
    """Return a history of {"role", "content"} as a string that `read_prompt` understands.

    Args:
        history: the turns, the first one first.
        continues: the last turn is the beginning of the answer, not a question.

    Raises:
        UserError: a turn without text, such as an image, or what `Chat` refuses.
    """
    chat = Chat(tuple(_turn(each) for each in history), continues)
    turns = [{"role": turn.role, "content": turn.content} for turn in chat.turns]
    return json.dumps({"adafuse_chat": turns, "continues": continues}, ensure_ascii=False)


def read_prompt(text: str) -> Prompt:
    """Return the chat that `write_chat` wrote; every other text is a prompt as it stands."""
    if not text.startswith(_MARK):
        return text
    row = json.loads(text)
    return Chat(tuple(_turn(each) for each in row["adafuse_chat"]), row["continues"])


def _turn(said: Mapping[str, str]) -> Turn:
    content = said["content"]
    if not isinstance(content, str):
        raise UserError(
            f"a turn of {said['role']!r} holds {type(content).__name__}, not text; take a task of"
            " text only"
        )
    return Turn(said["role"], content)  # type: ignore[arg-type]  # which the chat checks
