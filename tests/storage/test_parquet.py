"""Parquet files with their metadata, and atomic writing."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.errors import UserError
from adafuse.records.result import Candidate, Result, Round
from adafuse.storage.files import write_text
from adafuse.storage.parquet import as_table, iterate_rows, read_metadata, read_rows, write_rows
from adafuse.storage.traces import RESULT_FIELDS, result_columns, result_from

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
    write_rows(path, fields, [{"id": "x", **result_columns(RESULT)}], {"digest": "d", "n": [1]})
    (row,) = read_rows(path)
    assert row["id"] == "x"
    assert result_from(row) == RESULT
    assert read_metadata(path) == {"digest": "d", "n": [1]}
    assert read_rows(path, ["id"]) == [{"id": "x"}]


def test_a_path_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    write_rows(Path("~/t.parquet"), [pa.field("id", pa.string())], [{"id": "x"}], {})
    assert read_rows(Path("~/t.parquet")) == [{"id": "x"}]
    assert [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*")] == [
        "~",
        "~/t.parquet",
    ]


TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.none()
NUMBER = st.floats() | st.none()
WHOLE = st.integers(-(2**31), 2**31 - 1)


@given(st.lists(st.tuples(TEXT, NUMBER, st.booleans(), st.lists(st.tuples(WHOLE, TEXT)))))
def test_any_row_becomes_a_row_of_the_table(rows):
    item = pa.struct([("whole", pa.int32()), ("text", pa.string())])
    kinds = [pa.string(), pa.float64(), pa.bool_(), pa.list_(item)]
    fields = [pa.field(name, kind) for name, kind in zip("abcd", kinds, strict=True)]
    values = [
        {"a": a, "b": b, "c": c, "d": [{"whole": n, "text": text} for n, text in d]}
        for a, b, c, d in rows
    ]
    table = as_table(fields, values)
    assert table.schema == pa.schema(fields)
    assert list(map(repr, table.to_pylist())) == list(map(repr, values))


def test_writing_rows_imports_no_pandas(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib, pyarrow as pa\n"
        "from adafuse.storage.parquet import read_rows, write_rows\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "write_rows(path, [pa.field('a', pa.list_(pa.float64()))], [{'a': [1.0]}], {})\n"
        "assert read_rows(path) == [{'a': [1.0]}]\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "x.parquet"], check=True)


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
    write_text(missing.with_suffix(".journal"), "")
    with pytest.raises(UserError, match="is not finished; run its command again"):
        read_rows(missing)
    pa.parquet.write_table(pa.table({"a": [1]}), plain)
    with pytest.raises(UserError, match="was not written by adafuse"):
        read_metadata(plain)
    with pytest.raises(UserError, match="has no column 'id'"):
        read_rows(plain, ["id"])


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    columns = [pa.array(["q"]), pa.array(["p"])]
    pq.write_table(pa.table(columns, names=["question", "question"]), tmp_path / "a.parquet")
    with pytest.raises(UserError, match="has two columns 'question'; rename one"):
        list(iterate_rows(tmp_path / "a.parquet"))


def test_a_value_that_python_has_no_form_for_is_one_sentence(tmp_path: Path) -> None:
    columns = {"question": ["q"], "day": pa.array([10**7], pa.int32()).cast(pa.date32())}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a value that Python has no form for .*leave out its col"):
        list(iterate_rows(tmp_path / "a.parquet"))
    assert list(iterate_rows(tmp_path / "a.parquet", ["question"])) == [{"question": "q"}]


FLOAT = pa.float32()
HOLDERS = [FLOAT, pa.list_(FLOAT, 1), pa.list_view(FLOAT), pa.large_list_view(FLOAT)]
HOLDERS += [pa.map_(pa.string(), FLOAT), pa.struct({"a": pa.list_(FLOAT)})]


@pytest.mark.parametrize("kind", HOLDERS, ids=str)
def test_numbers_of_32_bits_are_read_as_they_were_written(
    tmp_path: Path, kind: pa.DataType
) -> None:
    value = {FLOAT: 0.1, HOLDERS[-2]: [("a", 0.1)], HOLDERS[-1]: {"a": [0.1]}}.get(kind, [0.1])
    pq.write_table(pa.table({"answer": pa.array([value], kind)}), tmp_path / "a.parquet")
    assert list(iterate_rows(tmp_path / "a.parquet")) == [{"answer": value}]
