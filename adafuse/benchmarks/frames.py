"""The text around a question: worked examples first, then the frame of the task."""

from dataclasses import dataclass
from pathlib import Path

from adafuse.errors import UserError

SLOT = "{question}"


@dataclass(frozen=True, slots=True)
class Frame:
    """`shots` is the text of the worked examples, `template` holds `{question}` once."""

    shots: str
    template: str

    def prompt(self, question: str) -> str:
        """Return the whole prompt for a question; braces elsewhere in the template are kept."""
        return self.shots + self.template.replace(SLOT, question)


def check_template(template: str, owner: str) -> None:
    """Refuse a template in which the question has no place, or more than one.

    Raises:
        UserError: `{question}` does not occur exactly once.
    """
    if (count := template.count(SLOT)) != 1:
        raise UserError(
            f"{owner}: prompt {template!r} holds {SLOT} {count} times; write it exactly once"
        )


def read_shots(path: Path) -> str:
    """Read worked examples.

    The newlines that end the file are dropped: what stands between the examples and the question
    is the template's business, and a final newline in an editor should not change a prompt.

    Raises:
        UserError: the file cannot be read as UTF-8 text.
    """
    try:
        return path.read_bytes().decode().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"shots file {str(path)!r} cannot be read: {error}") from None
