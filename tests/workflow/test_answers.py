"""Answers of the models alone, read from their shard traces."""

from pathlib import Path

import pytest

from adafuse.errors import UserError
from adafuse.records.result import Answer, Result
from adafuse.storage.parquet import read_rows, write_rows
from adafuse.storage.traces import result_columns
from adafuse.workflow.decode import TRACE_FIELDS, mark_failed, read_answers


def trace(path: Path, texts: dict[str, str]) -> Path:
    rows = [
        {"id": row, "benchmark": "qa", "run": path.stem, "shard": 0, "prompt_sha256": "0"}
        | result_columns(Result(text, "eos", (), (1,), (2,), (3,), 0.5))
        for row, text in texts.items()
    ]
    write_rows(path, TRACE_FIELDS, rows, {"digest": f"digest of {path.stem}"})
    return path


def test_each_row_gets_the_answers_of_all_models_in_order(tmp_path: Path) -> None:
    files = [
        trace(tmp_path / "one.parquet", {"a": "1a", "b": "1b"}),
        trace(tmp_path / "two.parquet", {"b": "2b", "a": "2a"}),
    ]
    assert read_answers(files, ["b", "a"]) == [
        (Answer("1b", "eos", 0.5), Answer("2b", "eos", 0.5)),
        (Answer("1a", "eos", 0.5), Answer("2a", "eos", 0.5)),
    ]


def test_thoughts_of_an_answer_come_with_it(tmp_path: Path) -> None:
    file = trace(tmp_path / "one.parquet", {"a": "<think>1</think>a"})
    rows = [row | {"thoughts": 16} for row in read_rows(file)]
    write_rows(file, TRACE_FIELDS, rows, {"digest": "one"})
    [(answer,)] = read_answers([file], ["a"])
    assert (answer.answer, answer.thoughts) == ("a", 16)


def test_a_row_of_a_failed_answer_is_another_row_than_one_of_an_answer(tmp_path: Path) -> None:
    files = [trace(tmp_path / f"{name}.parquet", {"a": "x", "b": "y"}) for name in ("one", "two")]
    digests = {"a": "0", "b": "1"}
    assert mark_failed(digests, files) == digests
    rows = [row | {"stop_reason": "error"} for row in read_rows(files[1]) if row["id"] == "b"]
    write_rows(files[1], TRACE_FIELDS, rows, {"digest": "two"})
    assert mark_failed(digests, files) == {"a": "0", "b": "1-failed"}


def test_a_trace_without_a_row_is_refused(tmp_path: Path) -> None:
    file = trace(tmp_path / "one.parquet", {"a": "1a"})
    with pytest.raises(UserError, match=r"one\.parquet' has no answer to row 'b'; decode it again"):
        read_answers([file], ["a", "b"])
