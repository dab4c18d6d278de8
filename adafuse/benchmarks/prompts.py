"""From a question to the whole prompt: few-shot examples and the template around them."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from adafuse.errors import UserError

SLOT = "{question}"


def fill(template: str, question: str) -> str:
    """Put a question into its place; braces elsewhere in the template are kept."""
    return template.replace(SLOT, question)


def check_template(template: str, owner: str) -> None:
    """Refuse a template in which the question has no place, or more than one.

    Raises:
        UserError: `{question}` does not occur exactly once.
    """
    if (count := template.count(SLOT)) != 1:
        raise UserError(
            f"{owner}: prompt {template!r} holds {SLOT} {count} times; write it exactly once"
        )


@dataclass(frozen=True, slots=True)
class Example:
    """A worked example, without the words around it."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Shots:
    """A parsed file; `text` is what it says up to the last example that is used."""

    text: str
    instruction: str
    examples: tuple[Example, ...]

    def questions(self) -> frozenset[str]:
        """Return the keys of the examples' questions; see `question_key`."""
        return frozenset(question_key(each.question) for each in self.examples)


def question_key(question: str) -> str:
    """Return the letters and digits of a question.

    The published SQuAD examples differ from the test rows that they are in a line break and, once,
    in a question mark.
    """
    return "".join(filter(str.isalnum, question)).casefold()


def read_shots(path: Path, template: str, count: int | None = None) -> Shots:
    """Read the instruction and the first `count` examples of a file; all without `count`.

    Raises:
        UserError: the file cannot be read, or has not the form that the prompt asks for, or holds
            fewer examples.
    """
    text = _read(path)
    before, after = _marks(template, path)
    instruction, *blocks = re.split(rf"(?m)^(?={re.escape(before)})", text)
    if count is not None and count > len(blocks):
        raise UserError(
            f"shots file {str(path)!r} holds {len(blocks)} examples, not {count}; lower shots.count"
        )
    examples = [
        _example(block, before, after, f"shots file {str(path)!r}, example {number}")
        for number, block in enumerate(blocks[:count], start=1)
    ]
    used = text if count is None else _cut(text, [instruction, *blocks[:count]])
    return Shots(used, instruction.strip("\n"), tuple(examples))


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"shots file {str(path)!r} cannot be read: {error}") from None


def _marks(template: str, path: Path) -> tuple[str, str]:
    before, _, after = template.partition(SLOT)
    marks = before.split("\n")[-1].strip(), after.strip().split("\n")[0]
    if not all(marks):
        raise UserError(
            f"prompt {template!r} has no words before and after {SLOT} that tell the examples of"
            f" {str(path)!r} apart; write them into the prompt"
        )
    return marks


def _example(block: str, before: str, after: str, where: str) -> Example:
    question, found, answer = block.removeprefix(before).partition("\n" + after)
    if not found or not question.strip() or not answer.strip():
        raise UserError(f"{where} is not a question, then {after!r} on a new line, then an answer")
    return Example(question.strip(), answer.strip())


def _cut(text: str, kept: list[str]) -> str:
    """Join blocks and end them as the file ends."""
    ending = text[len(text.rstrip("\n")) :]
    return "".join(kept).rstrip("\n") + ending


Style = Literal["strict", "published"]

_BLANK_LINE = "\n\n"


@dataclass(frozen=True, slots=True)
class Frame:
    """`head` is the text before the template, `template` holds `{question}` once.

    `instruction` is what `head` says besides worked examples.
    """

    head: str
    template: str
    instruction: str = ""

    def prompt(self, question: str) -> str:
        """Return the whole prompt for a question."""
        return self.head + fill(self.template, question)

    def task(self, question: str) -> str:
        """Return the prompt for a question without the worked examples."""
        above = self.instruction + _BLANK_LINE if self.instruction else ""
        return above + fill(self.template, question)


def make_frame(template: str, shots: Shots | None, style: Style) -> Frame:
    """Put together what stands around every question of a benchmark."""
    if shots is None:
        return Frame("", template)
    if style == "published":
        return Frame(shots.text + _BLANK_LINE, template, shots.instruction)
    blocks = [shots.instruction, *(_solved(template, each) for each in shots.examples)]
    head = "".join(block + _BLANK_LINE for block in blocks if block)
    return Frame(head, template, shots.instruction)


def _solved(template: str, example: Example) -> str:
    """Return an example in the frame of the question, a space before an answer on the same line."""
    asked = fill(template, example.question)
    return asked + ("" if asked[-1].isspace() else " ") + example.answer
