"""What models continue: a text, or a conversation that each puts into its own template."""

from dataclasses import dataclass
from typing import Literal, get_args

from adafuse.errors import UserError, known

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side says in a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation as a prompt; each model puts it into its own chat template.

    The models write what follows: an answer, or where the prompt `continues` its last turn, the
    rest of that turn, whose beginning is given.

    Raises:
        UserError: no turns, an unknown role, or an answer that is not begun to be continued.
    """

    turns: tuple[Turn, ...]
    continues: bool = False

    def __post_init__(self) -> None:
        if odd := [turn.role for turn in self.turns if turn.role not in get_args(Role)]:
            raise UserError(known("role", odd[0], list(get_args(Role))))
        if not self.turns:
            raise UserError("a chat has no turns; give at least what the user says")
        if self.continues and self.turns[-1].role != "assistant":
            raise UserError(
                f"a chat continues a turn of {self.turns[-1].role!r}; only what the assistant"
                " began to say can be continued"
            )

    @property
    def task(self) -> str:
        """What the user said last."""
        said = [turn.content for turn in self.turns if turn.role == "user"]
        return said[-1] if said else ""


Prompt = str | Chat
"""What models continue: a text, or a conversation."""


def task_of(prompt: Prompt) -> str:
    """Return a prompt as one text, for what reads no conversations."""
    return prompt.task if isinstance(prompt, Chat) else prompt


def letters(prompt: Prompt) -> int:
    """Return how long a prompt is."""
    return sum(len(t.content) for t in prompt.turns) if isinstance(prompt, Chat) else len(prompt)
