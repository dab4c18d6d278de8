"""What a benchmark consists of: the statistics of the paper's appendix C, and what hides in it."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from adafuse.benchmarks.prompts import Shots, question_key
from adafuse.benchmarks.rows import Row
from adafuse.scoring.markdown import escape


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


LEGEND = (
    "Mean lengths in characters over the rows of each benchmark as configured; those of the paper"
    " (appendix C) in parentheses where they are known. The answer is that of all accepted answers"
    " joined by a space, as the paper counts, then the first one alone. Shots: rows that are worked"
    " examples of the prompt. Repeated: rows with the question of an earlier row, verbatim and up"
    " to case; all are kept. Renamed: rows whose id got a suffix."
)

_HEAD = ("benchmark", "rows", "question", "answers", "first answer", "shots", "repeated", "renamed")


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


def to_csv(lines: Sequence[Described]) -> str:
    """Return the table as CSV; what the paper does not say is empty."""
    values = [_csv_row(line) for line in lines]
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(values[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(values)
    return out.getvalue()


def _csv_row(line: Described) -> dict[str, object]:
    ours, paper = line.ours, line.paper
    return {
        "benchmark": line.benchmark,
        "rows": ours.rows,
        "paper_rows": paper.rows,
        "question_chars": f"{ours.question_chars:.1f}",
        "paper_question_chars": paper.question_chars,
        "answer_chars": f"{ours.answer_chars:.1f}",
        "paper_answer_chars": paper.answer_chars,
        "first_answer_chars": f"{ours.first_answer_chars:.1f}",
        "shots_among_rows": ours.shots,
        "repeated_questions": ours.repeated,
        "repeated_up_to_case": ours.repeated_up_to_case,
        "renamed_ids": ours.renamed,
    }


def to_markdown(lines: Sequence[Described]) -> str:
    """Return the table as Markdown with its legend."""
    rule = ["---", *["---:"] * (len(_HEAD) - 1)]
    table = [list(_HEAD), rule, *(_cells(line) for line in lines)]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in table), "", LEGEND]) + "\n"


def _cells(line: Described) -> list[str]:
    ours, paper = line.ours, line.paper
    return [
        escape(line.benchmark),
        f"{ours.rows}{_beside(paper.rows)}",
        f"{ours.question_chars:.1f}{_beside(paper.question_chars)}",
        f"{ours.answer_chars:.1f}{_beside(paper.answer_chars)}",
        f"{ours.first_answer_chars:.1f}",
        str(ours.shots),
        f"{ours.repeated}, {ours.repeated_up_to_case}",
        str(ours.renamed),
    ]


def _beside(figure: float | None) -> str:
    return "" if figure is None else f" ({figure})"
