"""Prepared rows and shards."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from adafuse.benchmarks.prompts import PromptTemplate, question_key
from adafuse.benchmarks.rows import read_rows
from adafuse.benchmarks.shards import (
    Prepared,
    prepare,
    read_prepared,
    shard_of,
    write_prepared,
    write_shard,
)
from adafuse.workflow.digest import prepared_digest, shard_digest

TEMPLATE = PromptTemplate("", "Question: {question}\nAnswer:")


def rows_file(folder: Path, rows: dict[str, tuple[str, str]]) -> Path:
    lines = [json.dumps({"id": i, "question": q, "answer": a}) for i, (q, a) in rows.items()]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    return folder / "rows.jsonl"


def prepared(folder: Path, rows: dict[str, tuple[str, str]], shards: int = 3) -> Prepared:
    return Prepared(prepare(read_rows(rows_file(folder, rows)), TEMPLATE, shards=shards))


def digests(value: Prepared, shards: int = 3) -> list[str]:
    return [shard_digest(value.shard(number)) for number in range(shards)]


LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
ROWS = {f"row-{number}": (f"question {number}", f"answer {number}") for number in range(30)}


@given(st.text(), st.integers(1, 50))
def test_a_row_s_shard_depends_on_its_id_alone(identifier: str, shards: int) -> None:
    assert 0 <= shard_of(identifier, shards) < shards


def test_shards_stay_what_they_are_from_version_to_version() -> None:
    assert [shard_of(f"row-{number}", 3) for number in range(8)] == [2, 2, 1, 2, 1, 2, 0, 0]


@given(st.sampled_from(sorted(ROWS)), st.text(LETTERS, min_size=1).filter(str.strip))
def test_an_edited_question_changes_the_digest_of_its_shard_only(
    tmp_path_factory, name: str, question: str
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    before = digests(prepared(folder, ROWS))
    after = digests(prepared(folder, {**ROWS, name: (f"new {question}", "a")}))
    changed = [number for number in range(3) if before[number] != after[number]]
    assert changed == [shard_of(name, 3)]


def test_an_edited_answer_changes_no_shard_but_the_benchmark(tmp_path: Path) -> None:
    before = prepared(tmp_path, ROWS)
    after = prepared(tmp_path, {**ROWS, "row-3": ("question 3", "another")})
    assert digests(before) == digests(after)
    assert prepared_digest(before) != prepared_digest(after)


def test_the_shards_are_the_rows_in_file_order(tmp_path: Path) -> None:
    value = prepared(tmp_path, ROWS)
    order = [row.id for row in value.rows]
    for number in range(3):
        ids = [row.id for row in value.shard(number)]
        assert ids == sorted(ids, key=order.index)
    assert sum(len(value.shard(number)) for number in range(3)) == len(ROWS)


def test_rows_are_read_back_as_written(tmp_path: Path) -> None:
    rows = {**ROWS, "odd \u2028 id": ("a\nb\u2028c \U0001f600", "x")}
    value = prepared(tmp_path, rows)
    write_prepared(tmp_path / "out" / "rows.jsonl", value.rows)
    assert read_prepared(tmp_path / "out" / "rows.jsonl") == value.rows
    write_shard(tmp_path / "shard.jsonl", value.shard(1))
    found = read_prepared(tmp_path / "shard.jsonl")
    assert [(row.id, row.prompt, row.question) for row in found] == [
        (row.id, row.prompt, row.question) for row in value.shard(1)
    ]
    assert shard_digest(found) == shard_digest(value.shard(1))


def test_a_shard_file_holds_no_answers(tmp_path: Path) -> None:
    write_shard(tmp_path / "shard.jsonl", prepared(tmp_path, ROWS).shard(0))
    assert "answer 1" not in (tmp_path / "shard.jsonl").read_text()


def test_few_shot_examples_are_marked_and_decoded_all_the_same(tmp_path: Path) -> None:
    rows = read_rows(rows_file(tmp_path, ROWS))
    keys = frozenset({question_key("Question 7?")})
    marked = Prepared(prepare(rows, TEMPLATE, shards=3, few_shot_keys=keys))
    plain = prepared(tmp_path, ROWS)
    assert [row.id for row in marked.rows if row.shot] == ["row-7"]
    assert not any(row.shot for row in plain.rows)
    assert digests(marked) == digests(plain)
    assert prepared_digest(marked) != prepared_digest(plain)
    write_prepared(tmp_path / "rows.jsonl", marked.rows)
    assert read_prepared(tmp_path / "rows.jsonl") == marked.rows
