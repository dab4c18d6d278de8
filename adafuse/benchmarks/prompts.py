"""From a question to the whole prompt: few-shot examples and the template around them."""

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from adafuse.errors import UserError
from adafuse.storage.files import read_text

SLOT = "{question}"


@dataclass(frozen=True, slots=True)
class FewShotExample:
    """A question and its answer, without the words around them."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class FewShotFile:
    """An instruction and few-shot examples; `text` is the file up to the last one that is used."""

    text: str
    instruction: str
    examples: tuple[FewShotExample, ...]

    def questions(self) -> frozenset[str]:
        """Return the keys of the examples' questions; see `question_key`."""
        return frozenset(question_key(example.question) for example in self.examples)


# White space, invisible characters, quotes, and the punctuation of prose: not the point in 3.5, the
# signs in n! and f'(x), or the space between two numbers.
_WRITING = re.compile(
    r"(?<!\d)\s+|\s+(?!\d)|[\u00ad\u200b-\u200f\u2060\ufeff]|[\"`\u00b4\u2018-\u201f\u00ab\u00bb]"
    r"|(?<!\d)(?<!\d')(?<!\b[^\W\d])(?<!\b[^\W\d]')'|'(?=[^\W\d])"
    r"|[.,:;](?!\d)|(?<!\d)[,:;]|[?\u00bf\u00a1\u3001\u3002]|(?<![\d)])(?<!\b[^\W\d])!"
    r"|(?<=[^\W\d]{2})-(?=[^\W\d]{2})"
)
_DASHES = re.compile("[\u2010-\u2015\u2212]")
_RAISED = re.compile("(?=[\u00b2\u00b3\u00b9\u2070-\u207f])")


def unfilled(owner: str, template: str) -> str | None:
    """Return a warning about braces that stay, as those of a misspelt slot; None without any."""
    if f"{{{SLOT}}}" in template:
        return f"{owner}: the outer braces of {{{SLOT}}} stay in each prompt; write {SLOT}"
    others = sorted({*re.findall(r"{\w+}", template)} - {SLOT})
    return f"{owner}: {others[0]} stays as it is; only {SLOT} is filled in" if others else None


def unbroken(owner: str, text: str) -> str | None:
    r"""Return a warning about \n in a text without line breaks, as YAML has it in single quotes."""
    if r"\n" not in text or "\n" in text:
        return None
    return rf"{owner} has \n as two characters, not as a line break; write it in double quotes"


def question_key(question: str) -> str:
    """Return a question without what differs between two copies of it, or all if nothing is left.

    That is case, white space, quotes, punctuation of prose and Unicode forms, but no symbol that
    matters, as in `3 - 4`. The published SQuAD examples differ from their own test rows in a line
    break or question mark.
    """
    plain = unicodedata.normalize("NFKC", _RAISED.sub("^", _DASHES.sub("-", question))).casefold()
    return _WRITING.sub("", " ".join(plain.split())) or question


def read_few_shot(path: Path, template: str, count: int | None = None) -> FewShotFile:
    """Read the instruction and the first `count` examples of a file; all without `count`."""
    text = read_text(path, "shots file")
    if not text.strip():
        raise UserError(f"shots file {str(path)!r} is empty; write examples, or remove `shots`")
    before, after = _marks(template, path, text)
    instruction, *blocks = re.split(rf"(?m)^(?={re.escape(before)})", text)
    if count is not None and count > len(blocks):
        raise UserError(
            f"shots file {str(path)!r} holds {len(blocks)} examples, not {count}; lower shots.count"
        )
    if count != 0:
        _check_instruction(instruction, before, after, path, alone=not blocks)
    examples = [
        _example(block, before, after, f"shots file {str(path)!r}, example {number}")
        for number, block in enumerate(blocks[:count], start=1)
    ]
    ending = text[len(text.rstrip("\n")) :]
    text = "".join([instruction, *blocks[:count]]).rstrip("\n") + ending
    return FewShotFile(text, instruction.strip("\n"), tuple(examples))


def _marks(template: str, path: Path, text: str) -> tuple[str, str]:
    """Return what is before the question of each example, and between it and the answer.

    Lines of the prompt above that of the question are in all examples, or in none.
    """
    before, _, after = (part.strip() for part in template.partition(SLOT))
    last = before.split("\n")[-1]
    if not last or not after:
        raise UserError(
            f"prompt {template!r} needs words before and after {SLOT}, as the examples of"
            f" {str(path)!r} have them; add them to the prompt"
        )
    whole, count = (len(re.findall(f"(?m)^{re.escape(mark)}", text)) for mark in (before, last))
    if 0 < whole < count:
        raise UserError(
            f"shots file {str(path)!r}: {whole} of {count} examples begin with all lines of the"
            f" prompt before {SLOT}; write them in each example, or in none"
        )
    return before if whole else last, after


def _example(block: str, before: str, after: str, where: str) -> FewShotExample:
    question, _, answer = block.removeprefix(before).partition("\n" + after)
    if not question.strip() or not answer.strip():
        raise UserError(f"{where} is not a question, then {after!r} on a new line, then an answer")
    last = before.split("\n")[-1]
    if found := re.search(_alike(last), answer):
        raise UserError(
            f"{where} has {found[0].strip()!r} within its answer; begin each example with {last!r}"
        )
    return FewShotExample(question.strip(), answer.strip())


def _alike(mark: str) -> str:
    """Return a pattern of a line that begins with a mark in any case, with any spaces."""
    return r"(?im:^\s*" + r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", mark))) + ")"


_LABELLED = r"(?m:^\s*[^\W\d]\w*\s?:\s*\S)"  # such as "Q: x", which an instruction may have


def _check_instruction(text: str, before: str, after: str, path: Path, *, alone: bool) -> None:
    """Refuse examples of another form above the first one, or in a file without any."""
    first, last = before.split("\n")[-1], after.split("\n")[-1]
    marks = [_alike(first), _alike(last), *([_LABELLED] if alone else [])]
    if found := re.search("|".join(marks), text):
        line = text[found.start() :].strip().split("\n")[0]
        fix = ", or set shots.count: 0 if the file has none" if alone else ""
        raise UserError(
            f"shots file {str(path)!r} has {line[:60]!r} before its first example; begin each"
            f" example with {first!r}{fix}"
        )


Layout = Literal["strict", "published"]

_BLANK_LINE = "\n\n"


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """`head` is the text before `template`, and `instruction` what it says besides examples."""

    head: str
    template: str
    instruction: str = ""

    def prompt(self, question: str) -> str:
        """Return the whole prompt for a question; other braces of the template are kept."""
        return self.head + self.template.replace(SLOT, question)

    def question(self, question: str) -> str:
        """Return the prompt for a question without the few-shot examples."""
        above = self.instruction + _BLANK_LINE if self.instruction else ""
        return above + self.template.replace(SLOT, question)


def make_prompt_template(
    template: str, few_shot: FewShotFile | None, layout: Layout
) -> PromptTemplate:
    """Put together what surrounds every question of a benchmark."""
    if few_shot is None:
        return PromptTemplate("", template)
    if layout == "published":
        return PromptTemplate(few_shot.text + _BLANK_LINE, template, few_shot.instruction)
    blocks = [few_shot.instruction] if few_shot.instruction else []
    for example in few_shot.examples:
        question = template.replace(SLOT, example.question)
        # A space before an answer on the same line.
        blocks.append(question + ("" if question[-1].isspace() else " ") + example.answer)
    head = "".join(block + _BLANK_LINE for block in blocks)
    return PromptTemplate(head, template, few_shot.instruction)
