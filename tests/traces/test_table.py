"""Parquet files with their metadata, and atomic writing."""

from pathlib import Path

import pyarrow as pa
import pytest

from adafuse.errors import UserError
from adafuse.files import write_text
from adafuse.parquet import read_metadata, read_rows, write_table
from adafuse.records import Candidate, Result, Round
from adafuse.workflow.traces import RESULT_FIELDS, result_columns, result_from

RESULT = Result(
    text=" caf\u00e9",
    stop_reason="stop",
    rounds=(
        Round(
            (Candidate(" caf\u00e9", False, (0, 1), (0.5, float("inf")), 0.75),), 0, 1, ((0.9,), ())
        ),
        Round((), None, 0, ((), ())),
    ),
    tokens=(3, 2),
    prompt_tokens=(7, 9),
    forwards=(4, 4),
    seconds=0.25,
)


def test_results_are_read_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "trace.parquet"
    fields = [pa.field("id", pa.string()), *RESULT_FIELDS]
    write_table(path, fields, [{"id": "x", **result_columns(RESULT)}], {"digest": "d", "n": [1]})
    (row,) = read_rows(path)
    assert row["id"] == "x"
    assert result_from(row) == RESULT
    assert read_metadata(path) == {"digest": "d", "n": [1]}
    assert read_rows(path, ["id"]) == [{"id": "x"}]


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "half \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_text(tmp_path / "file" / "below.txt", "x")


def test_files_of_others_are_refused_in_one_sentence(tmp_path: Path) -> None:
    torn, missing, plain = (tmp_path / f"{name}.parquet" for name in ("torn", "missing", "plain"))
    torn.write_bytes(b"PAR1 half a file")
    with pytest.raises(UserError, match="is not a readable Parquet file"):
        read_rows(torn)
    with pytest.raises(UserError, match="does not exist"):
        read_rows(missing)
    pa.parquet.write_table(pa.table({"a": [1]}), plain)
    with pytest.raises(UserError, match="was not written by adafuse"):
        read_metadata(plain)
    with pytest.raises(UserError, match="has no column 'id'"):
        read_rows(plain, ["id"])
