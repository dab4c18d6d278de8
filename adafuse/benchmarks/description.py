"""What a benchmark consists of: the statistics of the paper's appendix C, and repeated rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

from pydantic import Field

from adafuse.benchmarks.prompts import FewShotFile, question_key
from adafuse.benchmarks.rows import Row
from adafuse.options import Positive, Section


@dataclass(frozen=True, slots=True)
class Description:
    """Mean lengths are in characters; `answer_chars` joins all answers by a space, as the paper.

    `shots` rows are few-shot examples of the prompt, `repeated` ones ask what a row before them
    asked, and `renamed` ones got a suffix to their id.
    """

    rows: int
    question_chars: float
    answer_chars: float
    first_answer_chars: float
    shots: int
    repeated: int
    repeated_up_to_case: int
    renamed: int


Figure = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]


class PaperFigures(Section):
    """What the paper's appendix C says of a benchmark; None where it is not known."""

    rows: Positive | None = None
    """rows in the paper"""
    question_chars: Figure | None = None
    """mean characters of a question in the paper"""
    answer_chars: Figure | None = None
    """mean characters of an answer in the paper"""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """SHA-256 of the authors' file"""

    def beside(self, ours: "Description") -> dict[str, tuple[float, float | None]]:
        """Return each figure of some rows, rounded as the paper's, beside that of the paper."""
        names = ("rows", "question_chars", "answer_chars")
        return {name: (round(getattr(ours, name), 1), getattr(self, name)) for name in names}


@dataclass(frozen=True, slots=True)
class Described:
    """A line of the table."""

    benchmark: str
    ours: Description
    paper: PaperFigures


def describe(rows: Sequence[Row], few_shot: FewShotFile | None) -> Description:
    """Describe the rows of a benchmark; there is at least one."""
    questions = [row.question for row in rows]
    examples = few_shot.questions() if few_shot else frozenset()
    return Description(
        rows=len(rows),
        question_chars=fmean(map(len, questions)),
        answer_chars=fmean(len(" ".join(row.answers)) for row in rows),
        first_answer_chars=fmean(len(row.answers[0]) for row in rows),
        shots=sum(question_key(question) in examples for question in questions),
        repeated=len(questions) - len(set(questions)),
        repeated_up_to_case=len(questions) - len(set(map(str.lower, questions))),
        renamed=sum(row.renamed for row in rows),
    )
