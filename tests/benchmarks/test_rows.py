"""Source files of benchmarks."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.benchmarks.rows import read_rows
from adafuse.errors import UserError


def write(folder: Path, *rows: object) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_ids_are_the_row_s_own_or_a_hash_of_the_question(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"id": "x", "question": "q1", "answer": "a"},
        {"id": 7, "question": "q2", "answer": ["a", "b"]},
        {"question": "q3", "answer": "a"},
    )
    rows = read_rows(path)
    assert [row.id for row in rows[:2]] == ["x", "7"]
    assert len(rows[2].id) == 16
    assert rows[1].answers == ("a", "b")


def test_duplicates_get_a_suffix_and_are_counted_never_merged(tmp_path: Path) -> None:
    row = {"question": "q", "answer": "a"}
    named = {"id": "x", **row}
    read = read_rows(write(tmp_path, named, {"id": "x-2", **row}, named, named, row, row))
    names = [row.id for row in read]
    assert names[:4] == ["x", "x-2", "x-3", "x-4"]
    assert names[5] == names[4] + "-2"
    assert sum(row.renamed for row in read) == 3


@given(ids=st.lists(st.sampled_from(["a", "a-2", "a-2-2", "b", "a-3"]), max_size=12, min_size=1))
def test_ids_are_unique_whatever_the_file_says(tmp_path_factory, ids: list[str]) -> None:
    folder = tmp_path_factory.mktemp("rows")
    read = read_rows(write(folder, *({"id": i, "question": "q", "answer": "a"} for i in ids)))
    names = [row.id for row in read]
    assert len(set(names)) == len(ids)
    own = [row.id for row in read if not row.renamed]
    assert own == list(dict.fromkeys(ids))


def test_only_a_newline_ends_a_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    text = '{"question": "a\u2028b\u0085c", "answer": "x"}\r\n\n{"question": "d", "answer": "y"}'
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert [row.question for row in read_rows(path)] == ["a\u2028b\u0085c", "d"]


def test_the_limit_takes_the_first_rows_and_reads_no_further(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "a", "answer": "x"}\nbroken\n')
    assert len(read_rows(path, limit=1)) == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"question": "a"', "line 2 is not valid JSON"),
        ("\udcff", "line 2, is not UTF-8"),
        ("[1]", "line 2 is not a JSON object"),
        ('{"answer": "a"}', "line 2 has no 'question'; add it"),
        ('{"question": "a"}', "line 2 has no 'answer'; add it"),
        ('{"question": 3, "answer": "a"}', "line 2: question is 3; it must be a string"),
        ('{"question": " ", "answer": "a"}', "line 2: question is empty"),
        ('{"question": "a", "answer": []}', "line 2: answer is an empty list"),
        ('{"question": "a", "answer": ["b", ""]}', "line 2: answer is empty"),
        ('{"question": "a", "answer": true}', "line 2: answer is True; it must be a string"),
        (
            '{"question": "a", "answer": "[\'b\', \'c\']"}',
            r"line 2: answer is a list or mapping written as text, \"\['b', 'c'\]\"; give a list",
        ),
        (
            '{"question": "a", "answer": " [1, -2.5] "}',
            r"answer is a list or mapping written as text, ' \[1, ",
        ),
        (
            """{"question": "a", "answer": "{'text': array(['b']), 'answer_start': array([3])}"}""",
            r"answer is a list or mapping written as text, \"\{'text': ",
        ),
        ('{"question": "a", "answer": "b", "id": 1.5}', "line 2: id is 1.5"),
        ('{"question": "a", "answer": "b", "id": ""}', "line 2: id is empty"),
        ('{"question": "a", "answer": "b", "id": true}', "line 2: id is True"),
        ('{"question": "\\ud800", "answer": "b"}', "line 2: question '\\\\ud800' holds half"),
        (
            '{"question": "a", "answer": "b\\u0000"}',
            r"line 2: answer 'b\\x00' holds NUL; remove it",
        ),
    ],
)
def test_a_bad_row_is_one_sentence_with_its_line(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "rows.jsonl"
    good = '{"question": "q", "answer": "a"}\n'
    path.write_bytes((good + line + "\n").encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=reason) as error:
        read_rows(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "there"),
    [
        (
            "r.csv",
            "question, answer\na,b\n",
            "no 'answer'; add it (its fields: 'question', ' answer')",
        ),
        ("r.csv", "frage;answer\na;b\n", "no 'question'; add it (its fields: 'frage', 'answer')"),
        ("r.csv", "questions,answer\na,b\n", "'answer'); did you mean 'questions'?"),
        ("r.json", '{"data": [{"question": "a"}]}', "'question'; add it (its fields: 'data')"),
        (
            "r.json",
            '{\n"data": [\n{"question": "a"}]\n}',
            "put one JSON object on each line, or all in one list",
        ),
        ("r.jsonl", "{}", "no 'question'; add it (its fields: none)"),
    ],
)
def test_a_row_without_a_field_names_those_that_it_has(tmp_path, name, text, there) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_rows(path)
    assert there in str(error.value)


def test_a_missing_or_empty_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_rows(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="has no rows"):
        read_rows(write(tmp_path))
