"""The data of a benchmark: every run's examples in the order of the questions."""

from pathlib import Path

import pyarrow as pa
import pytest

from adafuse.errors import UserError
from adafuse.metrics.score import write_outcomes
from adafuse.metrics.scorer import Outcome
from adafuse.report import explorer
from adafuse.report.explorer import Question, RunFiles, write_benchmark
from adafuse.storage.parquet import write_rows
from adafuse.storage.traces import RESULT_FIELDS, result_columns
from tests.report.test_packed import unpacked
from tests.support.made_up import FUSED


def trace(path: Path, numbers: list[int], **further: str) -> Path:
    fields = [pa.field("id", pa.string()), *RESULT_FIELDS]
    fields += [pa.field(name, pa.string()) for name in further]
    rows = [{"id": f"q{n}", **result_columns(FUSED[n]), **further} for n in numbers]
    write_rows(path, fields, rows, {})
    return path


def questions(count: int) -> list[Question]:
    return [Question(f"q{number}", f"question {number}", ("a", "b")) for number in range(count)]


def test_examples_are_in_the_order_of_the_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explorer, "ROUNDS", 2)
    path = trace(tmp_path / "run.parquet", [2, 0, 1])
    write_benchmark(tmp_path / "data", "b", questions(3), [RunFiles("run", path, {})])
    texts = unpacked(tmp_path / "data/b/runs/run/texts-0.js")[1]
    assert texts == [FUSED[number].text for number in range(3)]
    pieces = [unpacked(tmp_path / f"data/b/runs/run/rounds-{n}.js")[1] for n in (0, 1)]
    assert [len(piece) for piece in pieces] == [2, 1]
    rounds = pieces[1][0][0]
    assert rounds[0][0][0] == [" duck", 0, [0], [0.25, 0.5], 0.375]
    assert unpacked(tmp_path / "data/b/questions-0.js")[1][1] == ["question 1", ["a", "b"]]
    assert unpacked(tmp_path / "data/b/index.js")[1] == ["q0", "q1", "q2"]


def test_rows_that_are_not_scored_have_no_value(tmp_path: Path) -> None:
    path = trace(tmp_path / "run.parquet", [0, 1])
    write_outcomes(tmp_path / "o.parquet", [Outcome("q1", "", ("a",), 55.5)], {})
    files = RunFiles("run", path, {"strict": tmp_path / "o.parquet"})
    write_benchmark(tmp_path / "data", "b", questions(2), [files])
    index = unpacked(tmp_path / "data/b/runs/run/index.js")[1]
    assert index == {"stops": ["eos", "eos"], "values": {"strict": [None, 55.5]}}


@pytest.mark.parametrize("value", [99.97, 0.0312])
def test_a_value_just_below_the_full_one_is_not_that(tmp_path: Path, value: float) -> None:
    path = trace(tmp_path / "run.parquet", [0])
    write_outcomes(tmp_path / "o.parquet", [Outcome("q0", "", ("a",), value)], {})
    files = RunFiles("run", path, {"strict": tmp_path / "o.parquet"})
    write_benchmark(tmp_path / "data", "b", questions(1), [files])
    assert unpacked(tmp_path / "data/b/runs/run/index.js")[1]["values"] == {"strict": [value]}


def test_infinite_scores_and_the_run_that_a_row_was_taken_from_are_kept(tmp_path: Path) -> None:
    path = trace(tmp_path / "run.parquet", [5], taken_from="other")
    asked = [Question("q5", "?")]
    write_benchmark(tmp_path / "data", "b", asked, [RunFiles("run", path, {})])
    [row] = unpacked(tmp_path / "data/b/runs/run/rounds-0.js")[1]
    assert row[0][1][0] == [[" x", 0, [0], ["inf", "inf"], "inf"]]
    assert row[0][1][1] is None
    assert row[-1] == "other"


def test_a_trace_without_a_question_is_named(tmp_path: Path) -> None:
    path = trace(tmp_path / "run.parquet", [0])
    with pytest.raises(UserError, match=r"run.parquet' has no row 'q1' of its benchmark"):
        write_benchmark(tmp_path / "data", "b", questions(2), [RunFiles("run", path, {})])
