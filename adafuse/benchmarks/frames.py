"""Whole prompts: instruction and worked examples first, then the frame of the task.

`published` keeps the text of the examples' file as it is and adds a blank line, so that after a
file that ends in a newline three newlines stand before the question, and examples may be laid out
otherwise than the question. `strict` lays out examples and question alike.
"""

from dataclasses import dataclass
from typing import Literal

from adafuse.benchmarks.shots import Example, Shots
from adafuse.benchmarks.template import fill

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
