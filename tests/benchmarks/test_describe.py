"""The table of dataset statistics."""

import csv
import io

import pytest

from adafuse.benchmarks.description import Described, PaperFigures, describe
from adafuse.benchmarks.prompts import FewShotExample, FewShotFile, read_few_shot
from adafuse.benchmarks.rows import Row, read_rows
from adafuse.report.tables import datasets_table, to_csv
from tests.conftest import SHARED

ROWS = (
    Row("1", "How?", ("ab", "c")),
    Row("2", "Why so?", ("abcd",)),
    Row("1-2", "How?", ("x",), renamed=True),
    Row("3", "HOW?", ("y", "z")),
)
SHOTS = FewShotFile("", "", (FewShotExample("why so", "because"),))


def test_lengths_and_repetitions_are_counted() -> None:
    found = describe(ROWS, SHOTS)
    assert found.rows == 4
    assert found.question_chars == (4 + 7 + 4 + 4) / 4
    assert found.answer_chars == (4 + 4 + 1 + 3) / 4, "all answers joined by a space"
    assert found.first_answer_chars == (2 + 4 + 1 + 1) / 4
    assert (found.shots, found.repeated, found.repeated_up_to_case, found.renamed) == (1, 1, 2, 1)


def test_the_paper_stands_beside_our_figures_where_it_is_known() -> None:
    lines = [
        Described("qa", describe(ROWS, SHOTS), PaperFigures(answer_chars=3.5)),
        Described("m_t", describe(ROWS[:1], None), PaperFigures()),
    ]
    rows = list(csv.DictReader(io.StringIO(to_csv(datasets_table(lines)))))
    assert rows[0]["answer_chars"] == "3.0" and rows[0]["paper_answer_chars"] == "3.5"
    assert rows[0]["paper_rows"] == rows[1]["paper_answer_chars"] == ""
    text = datasets_table(lines).markdown
    assert "| qa | 4 | 4.8 | 3.0 (3.5) | 2.0 | 1 | 1, 2 | 1 |" in text
    assert "| m\\_t | 1 | 4.0 | 4.0 | 2.0 | 0 | 0, 0 | 0 |" in text


REAL = (
    ("natural_questions/nq_open_test3610", "natural_questions/nq_prompt", 3610, 24.7, 13.3, 0),
    ("triviaqa/triviaqa_wikipedia_test6000", "triviaqa/triviaqa_prompt", 6000, 267.9, 14.8, 5),
    ("squad/squad_2500", "squad/squad_prompt", 2500, 66.1, 20.9, 5),
)


@pytest.mark.parametrize(("rows", "shots", "count", "joined", "first", "examples"), REAL)
def test_the_figures_of_the_paper_come_out_of_the_published_files(
    rows: str, shots: str, count: int, joined: float, first: float, examples: int
) -> None:
    folder = SHARED / "benchmarks"
    if not folder.is_dir():
        pytest.skip(f"the real benchmarks are not at {folder}")
    template = "Question: {question}\nAnswer:"
    found = describe(
        read_rows(folder / f"{rows}.jsonl"), read_few_shot(folder / f"{shots}.txt", template)
    )
    assert found.rows == count
    assert round(found.answer_chars, 1) == joined
    assert round(found.first_answer_chars, 1) == first
    assert found.shots == examples
    if "squad" in rows:
        assert (found.repeated, found.repeated_up_to_case, found.renamed) == (3, 4, 3)
