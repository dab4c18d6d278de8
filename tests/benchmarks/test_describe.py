"""The table of dataset statistics."""

import csv
import hashlib
import io
from pathlib import Path

import pytest
import yaml

from adafuse.benchmarks.description import Described, PaperFigures, describe
from adafuse.benchmarks.prompts import FewShotExample, FewShotFile, read_few_shot
from adafuse.benchmarks.rows import Row, read_rows
from adafuse.report.tables import datasets_table, to_csv
from tests.conftest import SHARED

CONFIGS = Path(__file__).parents[2] / "config" / "benchmarks"

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
    ("natural_questions", "natural_questions/nq_open_test3610", "nq_prompt", 13.3, 0),
    ("triviaqa", "triviaqa/triviaqa_wikipedia_test6000", "prompt", 14.8, 5),
    ("squad", "squad/squad_2500", "prompt", 20.9, 5),
    ("gsm8k", "gsm8k/gsm8k_test1319_cleaned", "prompt", 272.3, 0),
    ("flores_en_de", "flores/flores_eng2deu_qa.devtest", "en2deu_prompt", 152.0, 0),
    ("flores_de_en", "flores/flores_deu2eng_qa.devtest", "deu2en_prompt", 130.4, 0),
)


def of_the_paper(benchmark: str) -> PaperFigures:
    text = (CONFIGS / f"{benchmark}.yaml").read_text("utf-8")
    return PaperFigures.model_validate(yaml.safe_load(text)["paper"])


@pytest.mark.parametrize("benchmark", [case[0] for case in REAL])
def test_all_figures_of_the_paper_stand_in_the_benchmarks_file(benchmark: str) -> None:
    assert None not in of_the_paper(benchmark).model_dump().values()


@pytest.mark.parametrize(("benchmark", "rows", "shots", "first", "examples"), REAL)
def test_the_figures_of_the_paper_come_out_of_the_published_files(
    benchmark: str, rows: str, shots: str, first: float, examples: int
) -> None:
    folder = SHARED / "benchmarks"
    if not folder.is_dir():
        pytest.skip(f"the real benchmarks are not at {folder}")
    config = yaml.safe_load((CONFIGS / f"{benchmark}.yaml").read_text("utf-8"))
    prompts = next((folder / rows).parent.glob(f"*{shots}.txt"))
    found = describe(read_rows(folder / f"{rows}.jsonl"), read_few_shot(prompts, config["prompt"]))
    paper = of_the_paper(benchmark)
    assert all(ours == theirs for ours, theirs in paper.beside(found).values())
    assert hashlib.sha256((folder / f"{rows}.jsonl").read_bytes()).hexdigest() == paper.sha256
    assert round(found.first_answer_chars, 1) == first
    assert found.shots == examples
    if benchmark == "squad":
        assert (found.repeated, found.repeated_up_to_case, found.renamed) == (3, 4, 3)
