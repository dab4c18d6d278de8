"""Predictions matched to the rows of a benchmark, and rows to exclude; nothing is passed over."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from adafuse.benchmarks.rows import PLAIN, Row, at_row, json_records, row_id
from adafuse.errors import UserError
from adafuse.files import read_text

Record = Mapping[str, Any]


def read_predictions(
    path: Path, rows: Sequence[Row], *, benchmark: str | None
) -> list[dict[str, str]]:
    """Read predictions {"id" or "question", "text"} from JSON lines or a Parquet trace.

    Args:
        path: `.parquet`, or JSON lines under any other name.
        rows: all rows of the benchmark; a prediction without id is found by its question.
        benchmark: what the column `benchmark` of the file must say, if it has one.

    Returns:
        "id", "text" and "stop_reason" ("" if the file does not say) of each.

    Raises:
        UserError: a file of another benchmark or form; an unknown, repeated or ambiguous row.
    """
    ids, by_question = {row.id for row in rows}, _by_question(rows)
    found: dict[str, dict[str, str]] = {}
    first: dict[str, str] = {}
    unknown = ""
    for where, record in _parquet(path) if path.suffix == ".parquet" else _json(path):
        _check_record(record, benchmark, where)
        name = row_id(record, PLAIN, where) or _id_of_question(record, by_question, where)
        if name not in ids:
            unknown = unknown or where
            continue
        if name in found:
            raise UserError(f"{where}: row {name!r} occurs twice, first in {first[name]}; keep one")
        first[name] = where.removeprefix(f"{path}, ")
        reason = str(record.get("stop_reason") or "")
        found[name] = {"id": name, "text": record["text"], "stop_reason": reason}
    if unknown and not found:
        raise UserError(
            f"{unknown}: no id or question is one of the references; is this another benchmark?"
        )
    if unknown:
        raise UserError(
            f"{unknown}: id or question is no row of the references; remove it or correct it"
        )
    return list(found.values())


def _parquet(path: Path) -> Iterator[tuple[str, Record]]:
    from adafuse.parquet import column_names, read_rows

    read = {"id", "question", "text", "stop_reason", "benchmark"}
    rows = read_rows(path, [name for name in column_names(path) if name in read])
    return ((at_row(path, number), row) for number, row in enumerate(rows))


def _json(path: Path) -> Iterator[tuple[str, Record]]:
    for where, record in json_records(path, "predictions file"):
        if not isinstance(record, dict):
            raise UserError(f'{where} is not a JSON object; write {{"id": ..., "text": ...}}')
        yield where, record


def _check_record(record: Record, benchmark: str | None, where: str) -> None:
    own = record.get("benchmark")
    if benchmark is not None and own is not None and own != benchmark:
        raise UserError(
            f"{where}: benchmark is {own!r}, not {benchmark!r}; give the file of {benchmark!r}, or"
            f" --benchmark {own} --scorer NAME to score it as it is"
        )
    if not isinstance(record.get("text"), str):
        given = f"is {record['text']!r}" if "text" in record else "is missing"
        raise UserError(f'{where}: text {given}; give a string, "" if there is none')


def _by_question(rows: Sequence[Row]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        ids[row.question.strip()].append(row.id)
    return ids


def _id_of_question(record: Record, by_question: Mapping[str, list[str]], where: str) -> str | None:
    question = record.get("question")
    if not isinstance(question, str) or not question.strip():
        raise UserError(
            f"{where}: id is None and question is {question!r}; give one of them as a string"
        )
    ids = by_question.get(question.strip(), [])
    if len(ids) > 1:
        raise UserError(
            f"{where}: question is that of rows {', '.join(map(repr, ids))}; give an id"
        )
    return ids[0] if ids else None


def read_exclusions(path: Path, rows: Sequence[Row]) -> frozenset[str]:
    """Read which rows to leave out: an id, a question or a JSON row {"id"} or {"question"} a line.

    A question that several rows share leaves out all of them.

    Raises:
        UserError: no such file, or a line that names no row.
    """
    ids, by_question = {row.id for row in rows}, _by_question(rows)
    excluded: set[str] = set()
    for number, line in enumerate(read_text(path, "exclusions").split("\n"), start=1):
        if line.strip():
            name = _name(line.strip())
            named = {name} & ids | set(by_question.get(name.strip(), []))
            if not named:
                raise UserError(
                    f"{path}, line {number}: {name!r} is neither id nor question of a row; correct"
                    " it"
                )
            excluded |= named
    return frozenset(excluded)


def _name(line: str) -> str:
    try:
        value = json.loads(line)
    except ValueError:
        return line
    if isinstance(value, dict):
        value = value.get("id", value.get("question"))
    return str(value)
