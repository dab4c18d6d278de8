"""The same records in files of every kind and form."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adafuse.benchmarks.records import read_records
from adafuse.benchmarks.rows import Fields, Row, read_ids, read_rows
from adafuse.errors import UserError
from adafuse.metrics.predictions import read_exclusions, read_predictions

ROWS = [
    {"id": "1", "question": 'a "b", c\td', "answer": "x\u2028\x85y"},
    {"id": "2", "question": "e\nf\xa0", "answer": " \u200bz "},
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
CSV = 'id,question,answer\n1,"a ""b"", c\td",x\u2028\x85y\n\n2,"e\nf\xa0"," \u200bz "\n'
CSV_OF_EXCEL = CSV.replace(",", ";").replace('b""; c', 'b"", c')
TSV = 'id\tquestion\tanswer\n1\t"a ""b"", c\td"\tx\u2028\x85y\n2\t"e\nf\xa0"\t \u200bz \n'
LIST = json.dumps(ROWS, indent=1, ensure_ascii=False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.jsonl", LINES), ("r.JSONL", LINES), ("r.ndjson", LINES), ("r.json", LINES),
        ("r", LINES), ("r.json", LIST), ("r.JSON", LIST), ("r.csv", CSV), ("r.CSV", CSV),
        ("r.tsv", TSV), ("a b.ü.csv", CSV), ("r.csv", CSV_OF_EXCEL),
    ],
)  # fmt: skip
@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_endings_line_ends_marks_and_gzip_change_no_row(
    tmp_path: Path, name: str, text: str, windows: bool, packed: bool
) -> None:
    data = text.encode()
    if windows:
        data = b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(data) if packed else data)
    assert [record for _, record in read_records(path, "file")] == ROWS


def test_quotes_that_nobody_meant_make_no_row_of_several(tmp_path: Path) -> None:
    path = tmp_path / "r.tsv"
    path.write_text('question\tanswer\n"We are here\tEins\nand there."\tZwei\nLast\tDrei\n')
    with pytest.raises(UserError, match=r"r\.tsv, line 2: a quote begins a field that has tabs"):
        read_rows(path)


@pytest.mark.parametrize("columns", [None, {"question", "answer"}])
def test_classes_of_parquet_from_the_hub_have_their_names(
    tmp_path: Path, columns: set[str] | None
) -> None:
    import datasets

    kinds = {
        "question": datasets.Value("string"),
        "answer": datasets.List(datasets.ClassLabel(names=["no", "yes"])),
        "more": datasets.Value("float32"),
    }
    values = {"question": ["a", "b"], "answer": [[1], [0, -1]], "more": [0.1, None]}
    table = datasets.Dataset.from_dict(values, datasets.Features(kinds))
    table.to_parquet(tmp_path / "r.parquet")
    records = [record for _, record in read_records(tmp_path / "r.parquet", "file", columns)]
    assert [record["answer"] for record in records] == [["yes"], ["no", None]]
    assert columns or [record["more"] for record in records] == [0.1, None]


@pytest.mark.parametrize(
    ("answer", "info", "said"),
    [
        (
            5,
            '{"info": {"features": {"answer": {"names": ["no"], "_type": "ClassLabel"}}}}',
            "label 5",
        ),
        (0, '{"info": {"features": {"answer": {"_type": "ClassLabel"}}}}', "num_classes"),
        (0, '{"ClassLabel', "Unterminated"),
    ],
)
def test_types_of_parquet_that_do_not_fit_are_one_sentence(
    tmp_path: Path, answer: int, info: str, said: str
) -> None:
    table = pa.table({"answer": [answer]}).replace_schema_metadata({"huggingface": info})
    pq.write_table(table, tmp_path / "r.parquet")
    with pytest.raises(
        UserError, match=rf"types that `datasets` wrote into it \(.*{said}.*metadata"
    ):
        [*read_records(tmp_path / "r.parquet", "file")]


@pytest.mark.parametrize("name", ["r.parquet", "r.PARQUET", "r.pq", "r"])
def test_parquet_is_known_by_its_content(tmp_path: Path, name: str) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / name)
    assert [record for _, record in read_records(tmp_path / name, "file")] == ROWS


@pytest.mark.parametrize(
    ("written", "text"),
    [("7", "7"), ("7.0", "7"), ("1e3", "1000"), ("0.1", "0.1"), ("-3", "-3"), ('"007"', "007"),
     ("12345678901234567890", "12345678901234567890"), ('"7.0"', "7.0"), ('"NA"', "NA")],
)  # fmt: skip
def test_a_number_as_answer_is_its_text(tmp_path: Path, written: str, text: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(f'{{"id": 7.0, "question": "q", "answer": [{written}, "b"]}}\n')
    assert read_rows(path) == (Row("7", "q", (text, "b")),)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([7.0, None]), "7"),
        (pa.array([0.1], pa.float32()), "0.1"),
        (pa.array([0.1], pa.float16()), "0.1"),
        (pa.array([[0.1]], pa.list_(pa.float32())), "0.1"),
        (pa.array([7]), "7"),
    ],
)
def test_a_number_in_parquet_is_its_text(tmp_path: Path, column: pa.Array, text: str) -> None:
    table = {"question": ["q"] * len(column), "answer": column}
    pq.write_table(pa.table(table), tmp_path / "r.parquet")
    assert read_rows(tmp_path / "r.parquet", limit=1)[0].answers == (text,)


@pytest.mark.parametrize("cell", ["7", "7.0", "007", "1e3", "NA", "None", "null", "nan", " a "])
def test_all_cells_of_csv_are_text(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "r.csv"
    path.write_text(f"id,question,answer.text\n{cell.strip()},{cell},{cell}\n")
    (row,) = read_rows(path, fields=Fields(answer="answer.text"))
    assert row == Row(cell.strip(), cell, (cell,))


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("r.csv", "question,answer,answer\nq,a,b", "line 1: column 'answer' occurs twice"),
        ("r.csv", "question,answer\nq,a\nquestion,answer\nr,b", "line 3 is the header again"),
        ("r.csv", "question,answer\nq,a\nq,a,b", "line 3 has 3 fields, but the header has 2"),
        ("r.csv", "question,answer\nq", "line 2 has 1 fields"),
        ("r.csv", 'question,answer\nq,"a\nq,a\n', "line 2 is not valid CSV"),
        ("r.csv", 'question,answer\nq,"a" b\n', "line 2 is not valid CSV"),
        ("r.csv.gz", 'question,answer\nq,"a" b\n', "line 2 is not valid CSV"),
        ("r.csv", "question;answer\nq;a;b\n", "line 2 has 3 fields, but the header has 2"),
        ("r.csv", "question,answer\nq,\n", "line 2: answer is empty"),
        ("r.csv", 'question,answer\n"q\nr",\n', "line 2: answer is empty"),
        ("r.csv", "question,answer\n", "has no rows"),
        ("r.csv", "", "has no rows"),
        ("r.jsonl", '{"question": "q", "answer": null}', "line 1: answer is None"),
        ("r.jsonl", '{"question": "q", "answer": NaN}', "line 1: answer is nan"),
        ("r.jsonl", '{"question": "q", "answer": {"a": 1}}', "line 1: answer is {'a': 1}"),
        ("r.jsonl", '{"question": "q", "question": "r", "answer": "a"}', "'question' occurs tw"),
        ("r.jsonl", '{"question": "q", "answer": "a"}\r{"question": "r"}', "the character"),
    ],
)
def test_a_table_that_cannot_be_meant_is_one_sentence(
    tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    (tmp_path / name).write_bytes(text.encode())
    with pytest.raises(UserError) as error:
        read_rows(tmp_path / name)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_column_that_parquet_has_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["q"]), pa.array(["r"])], ["question", "question"])
    pq.write_table(table, tmp_path / "r.parquet")
    with pytest.raises(UserError, match="two columns 'question'"):
        read_rows(tmp_path / "r.parquet")


def test_ids_exclusions_and_predictions_are_read_in_the_same_way(tmp_path: Path) -> None:
    rows = [Row(name, f"q{name}", ("a",)) for name in ("1e3", "007", "x\xa0")]
    listed = tmp_path / "ids.txt"
    listed.write_bytes("\ufeff1e3\r\n007 \r\nx\xa0\r\n".encode())
    assert read_ids(listed) == ("1e3", "007", "x\xa0")
    listed.write_bytes(b'\xef\xbb\xbf1e3\r\n{"id": null, "question": "q007"}\r\n')
    assert read_exclusions(listed, rows) == {"1e3", "007"}
    predicted = tmp_path / "p.csv.gz"
    predicted.write_bytes(gzip.compress(b'\xef\xbb\xbfid,text\r\n007,NA\r\n1e3,"a\r\nb"\r\n'))
    found = read_predictions(predicted, rows, benchmark=None)
    assert [(row["id"], row["text"]) for row in found] == [("007", "NA"), ("1e3", "a\nb")]
