"""What a benchmark consists of: the statistics of the paper's appendix C, and what hides in it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from adafuse.benchmarks.prompts import Shots, question_key
from adafuse.benchmarks.rows import Row


@dataclass(frozen=True, slots=True)
class Description:
    """Mean lengths are in characters.

    `answer_chars` is of all accepted answers joined by a space, as the paper counts, and
    `first_answer_chars` of the first one. `shots` rows are worked examples of the prompt.
    `repeated` rows ask what a row before them asked, `repeated_up_to_case` the same up to case;
    `renamed` rows got a suffix to their id.
    """

    rows: int
    question_chars: float
    answer_chars: float
    first_answer_chars: float
    shots: int
    repeated: int
    repeated_up_to_case: int
    renamed: int


@dataclass(frozen=True, slots=True)
class PaperFigures:
    """What the paper's appendix C says of a benchmark; None where it is not known."""

    rows: int | None = None
    question_chars: float | None = None
    answer_chars: float | None = None


@dataclass(frozen=True, slots=True)
class Described:
    """A line of the table."""

    benchmark: str
    ours: Description
    paper: PaperFigures


def describe(rows: Sequence[Row], shots: Shots | None) -> Description:
    """Describe the rows of a benchmark; there is at least one."""
    questions = [row.question for row in rows]
    examples = shots.questions() if shots else frozenset()
    return Description(
        rows=len(rows),
        question_chars=fmean(map(len, questions)),
        answer_chars=fmean(len(" ".join(row.answers)) for row in rows),
        first_answer_chars=fmean(len(row.answers[0]) for row in rows),
        shots=sum(question_key(question) in examples for question in questions),
        repeated=_repeated(questions),
        repeated_up_to_case=_repeated(map(str.lower, questions)),
        renamed=sum(row.renamed for row in rows),
    )


def _repeated(questions: Iterable[str]) -> int:
    asked = list(questions)
    return len(asked) - len(set(asked))
