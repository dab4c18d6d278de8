"""Records of other forms than the published one, and other kinds of files."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adafuse.benchmarks.rows import PLAIN, Fields, Row, joined, read_rows, row_of
from adafuse.errors import UserError
from adafuse.metrics.gsm8k import final_number
from adafuse.options import parse
from tests.conftest import SHARED

ROWS = [
    {"id": "a", "question": "q1", "answer": ["x", "no\u00a0break"]},
    {"id": "b", "question": "q2", "answer": ["zero\u200bwidth"]},
]


def test_lines_lists_and_parquet_give_the_same_rows(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "lines.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "list.json").write_text(json.dumps(ROWS, indent=1))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "r.parquet")
    read = [read_rows(tmp_path / name) for name in ("r.jsonl", "lines.json", "list.json")]
    assert read[0][0] == Row("a", "q1", ("x", "no\u00a0break"))
    assert read[0][1].answers == ("zero\u200bwidth",)
    assert read[0] == read[1] == read[2] == read_rows(tmp_path / "r.parquet")


@pytest.mark.parametrize("name", ["bad.parquet", "bad.json"])
def test_a_bad_row_without_lines_is_named_by_its_number(tmp_path: Path, name: str) -> None:
    rows = [{"question": "q", "answer": "a"}, {"question": " ", "answer": "a"}]
    if name.endswith("json"):
        (tmp_path / name).write_text(json.dumps(rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / name)
    with pytest.raises(UserError, match=rf"{name}, row 1 \(counted from 0\): question is empty"):
        read_rows(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("x.parquet", b"no parquet", "is not a readable Parquet file"),
        ("none.parquet", None, "does not exist"),
        ("x.json", b"[1, ", "is not valid JSON"),
        ("x.json", b"[1]", "row 0 (counted from 0) is not a JSON object"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, name: str, data: bytes | None, sentence: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError) as error:
        read_rows(tmp_path / name)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_cell_of_several_accepted_answers_is_split_where_its_separator_is_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "r.csv").write_text("question,answer\nq1,Wien | Vienna\nq2,Rhine\nq3,a|\n")
    assert read_rows(tmp_path / "r.csv")[0].answers == ("Wien | Vienna",)
    fields = Fields(answer_separator="|")
    rows = read_rows(tmp_path / "r.csv", limit=2, fields=fields)
    assert [row.answers for row in rows] == [("Wien", "Vienna"), ("Rhine",)]
    with pytest.raises(UserError, match="line 4: answer is empty"):
        read_rows(tmp_path / "r.csv", fields=fields)


def test_answers_that_look_like_several_are_told() -> None:
    rows = {str(n): ("a",) for n in range(8)} | {"x": ("a; b", "c")}
    assert joined(rows, "here") is None
    assert joined(rows | {"y": ("some; text",)}, "here") is None
    told = joined(rows | {"y": ("Wien|Vienna",)}, "here")
    assert told == (
        "here: 1 of 10 rows have one accepted answer with '|' in it, such as 'Wien|Vienna';"
        " if these are several, set answer_separator in its fields to '|'"
    )
    told = joined(rows | {"y": ("a;b",), "z": ("c;d",)}, "here")
    assert told is not None and "';'" in told


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (Fields(question="text"), "f has no 'text'; add it"),
        (Fields(question="{context} {question}"), "f has no 'context'; add it"),
        (Fields(answer="answers.txt"), "f has no 'answers.txt'; add it"),
        (Fields(answer="question.text"), "f has no 'question.text'; add it"),
        (Fields(id="key"), "f has no 'key'; add it"),
        (Fields(question="number"), "f: number is 3; it must be a string"),
        (Fields(answer="flag"), "f: flag is True; it must be a string"),
        (Fields(answer="nan"), "f: nan is nan; it must be a string"),
        (Fields(answer="deep"), "f: deep is ['b']; it must be a string"),
        (Fields(final_after="####"), "f: answer 'a' has nothing after '####'"),
    ],
)
def test_a_missing_or_wrong_field_is_named_as_it_was_asked_for(
    fields: Fields, sentence: str
) -> None:
    record = {"question": "q", "answer": "a", "answers": [{"text": "b"}], "number": 3}
    record |= {"flag": True, "nan": float("nan"), "deep": [["b"]]}
    with pytest.raises(UserError) as error:
        row_of(record, fields, "f")
    assert sentence in str(error.value)


@pytest.mark.parametrize("spec", ["{question", "{}", "{context}\n{question", "{{question}}"])
def test_a_template_with_a_brace_that_encloses_no_field_is_one_sentence(spec: str) -> None:
    with pytest.raises(UserError) as error:
        parse(Fields, {"question": spec}, "fields")
    said = str(error.value).replace(r"\n", "\n")
    assert said.startswith(f"fields: question: '{spec}' has a '") and said.endswith("the prompt")


def test_a_path_goes_into_each_element_of_a_list() -> None:
    record = {"question": "q", "answers": [{"text": "a"}, {"text": "b"}]}
    assert row_of(record, Fields(answer="answers.text"), "f").answers == ("a", "b")


def test_the_id_is_the_same_for_the_same_question_from_any_source() -> None:
    row = row_of({"question": "q", "answer": "a"}, PLAIN, "f")
    assert row == row_of({"text": "q", "answer": "a"}, Fields(question="text"), "g")


def test_the_official_gsm8k_file_gives_the_final_numbers_of_the_published_one() -> None:
    folder = SHARED / "benchmarks"
    if not folder.is_dir():
        pytest.skip(f"the real benchmarks are not at {folder}")
    official = read_rows(
        folder / "reference/gsm8k_official_test.jsonl", fields=Fields(final_after="####")
    )
    published = read_rows(folder / "gsm8k/gsm8k_test1319_cleaned.jsonl")
    assert len(official) == len(published) == 1319
    for ours, theirs in zip(official, published, strict=True):
        assert ours.id == theirs.id
        assert final_number(ours.answers[0]) == final_number(theirs.answers[0])


def test_no_break_spaces_and_zero_width_characters_of_the_nq_rows_are_kept() -> None:
    path = SHARED / "benchmarks/natural_questions/nq_open_test3610.jsonl"
    if not path.is_file():
        pytest.skip(f"the real benchmarks are not at {path}")
    rows = read_rows(path)
    lines = path.read_bytes().split(b"\n")
    assert [row.answers for row in rows] == [tuple(json.loads(x)["answer"]) for x in lines if x]
    assert sum("\u00a0" in answer for row in rows for answer in row.answers) == 142
    assert sum(row.question.count("\u200b") for row in rows) == 6
