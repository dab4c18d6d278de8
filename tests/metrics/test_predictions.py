"""Predictions that cannot be matched to rows are one sentence with file and line."""

import json
import re
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from adafuse.benchmarks.rows import Row
from adafuse.errors import UserError
from adafuse.metrics.predictions import read_exclusions, read_predictions
from adafuse.metrics.score import evaluate
from adafuse.storage.parquet import write_rows

ROWS = (
    Row("a", "Where?", ("here",)),
    Row("b", "When?", ("now",)),
    Row("c", "Why?", ("so",)),
    Row("c-2", "Why?", ("because",)),
    Row("7", "How many?", ("7",)),
)


def read(path: Path, *values: object, benchmark: str | None = "qa"):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return read_predictions(path, ROWS, benchmark=benchmark)


def test_rows_are_found_by_id_or_question(tmp_path: Path) -> None:
    found = read(
        tmp_path / "p.jsonl",
        {"id": "c-2", "text": "x"},
        {"id": 7, "text": ""},
        {"question": " When? ", "text": "y"},
        {"id": "a", "text": 3.0},
        {"id": "c", "text": 2.5},
    )
    texts = [("c-2", "x"), ("7", ""), ("b", "y"), ("a", "3"), ("c", "2.5")]
    assert [(row["id"], row["text"]) for row in found] == texts


A = {"id": "a", "text": "x"}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            [A, {"id": "zz", "text": "x"}],
            "line 2: no row of the references has this id or question",
        ),
        ([{"id": "zz", "text": "x"}], "line 1: no row of the references has this id"),
        ([A, {"question": "Who?", "text": "x"}], "line 2: no row of the references"),
        ([A, A], "line 2: row 'a' occurs twice, first in line 1; keep one"),
        (
            [A, {"id": "b", "question": "Where?", "text": "x"}],
            "line 2: question has 'Where?', but row 'b' asks 'When?'; correct the id, or leave out"
            " `id` or `question`",
        ),
        (
            [{"id": "b", "prompt": "Q: Where?\nA:", "text": "x"}],
            "line 1: prompt has 'Where?', but row 'b' asks 'When?'; correct the id, or leave out",
        ),
        ([A, {"question": "Where?", "text": "x"}], "line 2: row 'a' occurs twice"),
        ([{"question": "Why?", "text": "x"}], "question is that of rows 'c', 'c-2'; give an id"),
        ([{"text": "x"}], "line 1 has neither 'id' nor 'question'; rename the"),
        ([{"id": "", "text": "x"}], "line 1: id is empty; fill it in"),
        ([{"id": True, "text": "x"}], "line 1: id is True; it must be a string"),
        ([{"id": "a"}], "line 1 has no 'text'; rename the field that holds it"),
        ([{"id": "a", "text": True}], "line 1: text is True; give a string"),
        ([{"id": "a", "text": "\ud83d!"}], r"line 1: text '\ud83d!' holds half a surrogate pair"),
        ([{**A, "benchmark": "mt"}], "line 1: benchmark is 'mt', not 'qa'; give the file of 'qa'"),
        ([[1]], "line 1 is not a JSON object"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_line(
    tmp_path: Path, values: list[object], sentence: str
) -> None:
    with pytest.raises(UserError) as error:
        read(tmp_path / "p.jsonl", *values)
    assert sentence in str(error.value)
    assert str(tmp_path / "p.jsonl") in str(error.value)
    assert "\n" not in str(error.value)


def test_predictions_of_rows_whose_id_occurs_twice_are_told_their_names(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(A) + "\n" + json.dumps(A) + "\n")
    rows = (Row("a", "Where?", ("here",)), Row("a-2", "When?", ("now",), renamed=True))
    with pytest.raises(UserError, match=r"row 'a' occurs twice, .* name their .* 'a', 'a-2', in"):
        read_predictions(path, rows, benchmark=None)
    path.write_text(json.dumps(A) + "\n")
    with pytest.raises(UserError, match=r"have the id 'a', and one prediction; .* \('a', 'a-2', "):
        read_predictions(path, rows, benchmark=None)
    path.write_text("".join(json.dumps(A | {"id": row.id}) + "\n" for row in rows))
    assert len(read_predictions(path, rows, benchmark=None)) == 2


def test_a_question_or_prompt_beside_an_id_may_be_written_otherwise(tmp_path: Path) -> None:
    found = read(
        tmp_path / "p.jsonl",
        {"id": "a", "question": "where", "text": "x"},
        {"id": "b", "question": None, "prompt": "Q: Where?\nA: here\n\nQ: When?\nA:", "text": "x"},
        {"id": "c", "prompt": "What is the reason?", "text": "x"},
    )
    assert [row["id"] for row in found] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("given", "cut"),
    [
        (["length", "eos", "stop"], 1),
        (["MAX_TOKENS", "end_turn", "Length"], 2),
        (["length", "eos", "content_filter"], None),
        (["length", "eos", None], None),
    ],
)
@pytest.mark.parametrize("column", ["stop_reason", "finish_reason"])
def test_the_share_of_cut_texts_is_known_only_if_every_reason_is(
    tmp_path: Path, column: str, given: list[str | None], cut: int | None
) -> None:
    rows = [
        {"id": name, "text": "x"} | ({column: reason} if reason else {})
        for name, reason in zip("abc", given, strict=True)
    ]
    found = evaluate(ROWS, read(tmp_path / "p.jsonl", *rows), "squad", benchmark="qa", run="r")
    assert found.score.cut == cut


def test_a_finish_reason_counts_beside_a_stop_reason_that_says_nothing(tmp_path: Path) -> None:
    reasons = [("length", None), ("stop", "\n"), ("stop", 128009)]  # as vLLM answers
    rows = [
        {"id": name, "text": "x", "finish_reason": finish, "stop_reason": stop}
        for name, (finish, stop) in zip("abc", reasons, strict=True)
    ]
    found = evaluate(ROWS, read(tmp_path / "p.jsonl", *rows), "squad", benchmark="qa", run="r")
    assert found.score.cut == 1


def test_marks_of_a_model_in_texts_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["<think>Hm</think>here", "now<|eot_id|>", "so</s>\n", "a <b>"]
    read(
        tmp_path / "p.jsonl", *({"id": i, "text": t} for i, t in zip("ab", texts[2:], strict=True))
    )
    assert "1 of 2 texts begin or end with a mark such as </s>, which is scored" in caplog.text
    caplog.clear()
    read(
        tmp_path / "p.jsonl", *({"id": i, "text": t} for i, t in zip("ab", texts[:2], strict=True))
    )
    assert "2 of 2 texts begin or end with a mark such as <think>" in caplog.text
    caplog.clear()
    read(tmp_path / "p.jsonl", {"id": "a", "text": "a <b>"})
    assert not caplog.text


def test_all_questions_in_their_order_are_matched_by_their_place(tmp_path: Path) -> None:
    given = [{"question": row.question, "text": row.answers[0]} for row in ROWS]
    found = read(tmp_path / "p.jsonl", *given)
    assert [(row["id"], row["text"]) for row in found] == [(r.id, r.answers[0]) for r in ROWS]
    for other in (given[:-1], [*given[1:], given[0]]):
        with pytest.raises(UserError, match="give an id, or the questions of all rows in their"):
            read(tmp_path / "p.jsonl", *other)


def test_a_file_without_predictions_is_refused_and_not_scored_as_wrong(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"p.jsonl' has no predictions; decode again"):
        read(tmp_path / "p.jsonl")
    (tmp_path / "p.csv").write_text("id,text\n")
    with pytest.raises(UserError, match="has no predictions"):
        read_predictions(tmp_path / "p.csv", ROWS, benchmark=None)


def test_broken_json_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "a"\n')
    with pytest.raises(UserError, match="line 1 is not valid JSON"):
        read_predictions(tmp_path / "p.jsonl", ROWS, benchmark=None)
    for name in ("none.jsonl", "none.parquet"):
        with pytest.raises(UserError, match=name):
            read_predictions(tmp_path / name, ROWS, benchmark=None)


def trace(path: Path, benchmark: str) -> Path:
    names = ("id", "benchmark", "text", "stop_reason")
    rows = [dict(zip(names, ("a", benchmark, "here", "error"), strict=True))]
    write_rows(path, [pa.field(name, pa.string()) for name in names], rows, {})
    return path


def test_a_trace_is_read_with_its_stop_reasons_if_it_is_of_this_benchmark(tmp_path: Path) -> None:
    path = trace(tmp_path / "t.parquet", "qa")
    assert read_predictions(path, ROWS, benchmark="qa") == [
        {"id": "a", "text": "here", "stop_reason": "error", "fits": None, "thoughts": None}
    ]
    with pytest.raises(UserError, match=r"row 0 .*: benchmark is 'qa', not 'mt'"):
        read_predictions(path, ROWS, benchmark="mt")
    assert read_predictions(path, ROWS, benchmark=None)


def test_a_trace_is_read_with_what_fits_so_that_answers_beyond_the_budget_are_counted(
    tmp_path: Path,
) -> None:
    columns = [pa.field("id", pa.string()), pa.field("text", pa.string())]
    rows = [{"id": "a", "text": "here", "fits": 2}, {"id": "b", "text": "now", "fits": None}]
    write_rows(tmp_path / "t.parquet", [*columns, pa.field("fits", pa.int32())], rows, {})
    found = read_predictions(tmp_path / "t.parquet", ROWS, benchmark=None)
    assert evaluate(ROWS, found, "squad", benchmark="qa", run="fused").score.beyond == 1


COUNTED = [("<think></think> here", 15, None), ("here", None, 4), ("now", None, None)]
"""Texts with how much of them are thoughts, and how much fits."""


def test_a_trace_means_the_same_after_pandas_wrote_it(tmp_path: Path) -> None:
    names = ("id", "text", "thoughts", "fits")
    rows = [
        dict(zip(names, (id, *each), strict=True)) for id, each in zip("abc", COUNTED, strict=True)
    ]
    frame = pd.DataFrame(rows)
    assert frame["thoughts"].dtype == float
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    wanted = [{"stop_reason": "", **row} for row in rows]
    assert read(tmp_path / "t.jsonl", *rows) == wanted
    for name in ("t.parquet", "t.csv"):
        assert read_predictions(tmp_path / name, ROWS, benchmark=None) == wanted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("thoughts", value) for value in (True, -1, 5)),
        *(("fits", value) for value in (True, "no", 2.5, [2])),
    ],
)
def test_a_length_that_the_text_cannot_have_is_refused(
    tmp_path: Path, name: str, value: object
) -> None:
    said = f"{name} is {value!r}, but the text has 4 characters; give a whole number of them"
    with pytest.raises(UserError, match=re.escape(said)):
        read(tmp_path / "t.jsonl", {"id": "a", "text": "here", name: value})
    row = {"id": "a", "text": "here", "thoughts": "I wonder"}  # a text in files of others
    assert read(tmp_path / "t.jsonl", row)[0]["thoughts"] is None


def test_a_parquet_file_without_text_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "t.parquet", [pa.field("id", pa.string())], [{"id": "a"}], {})
    with pytest.raises(UserError, match=r"row 0 .* has no 'text'; rename"):
        read_predictions(tmp_path / "t.parquet", ROWS, benchmark=None)


def test_exclusions_name_ids_or_questions(tmp_path: Path) -> None:
    path = tmp_path / "shots.txt"
    path.write_text('a\n\nWhy?\n{"id": 7}\n{"question": "When?"}\n')
    assert read_exclusions(path, ROWS) == {"a", "c", "c-2", "7", "b"}
    path.write_text("a\nWho?\n")
    with pytest.raises(UserError, match="line 2: 'Who\\?' is neither id nor question"):
        read_exclusions(path, ROWS)
    with pytest.raises(UserError, match="cannot be read"):
        read_exclusions(tmp_path / "none.txt", ROWS)
