"""Predictions matched to the rows of a benchmark, and rows to exclude; nothing is passed over."""

import codecs
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from adafuse.benchmarks.rows import Row
from adafuse.errors import UserError

Fields = Mapping[str, Any]


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
    lookup = _Lookup(path, rows)
    found: dict[str, dict[str, str]] = {}
    first: dict[str, str] = {}
    strangers = ""
    for where, value in _parquet(path) if path.suffix == ".parquet" else _lines(path):
        _check_benchmark(value, benchmark, where)
        name = lookup.id(value, where)
        if name is None:
            strangers = strangers or where
            continue
        if name in found:
            raise UserError(f"{where}: row {name!r} occurs twice, first in {first[name]}; keep one")
        first[name] = where.removeprefix(f"{path}, ")
        found[name] = {"id": name, "text": _text(value, where), "stop_reason": _reason(value)}
    if strangers:
        raise UserError(_stranger(strangers, bool(found)))
    return list(found.values())


def _stranger(where: str, some_known: bool) -> str:
    if not some_known:
        return f"{where}: no id or question is one of the references; is this another benchmark?"
    return f"{where}: id or question is no row of the references; remove it or correct it"


class _Lookup:
    """Finds the row of a prediction by its id, else by its question."""

    def __init__(self, path: Path, rows: Sequence[Row]) -> None:
        self._path = path
        self._ids = {row.id for row in rows}
        self._by_question: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            self._by_question[row.question.strip()].append(row.id)

    def id(self, value: Fields, where: str) -> str | None:
        own = value.get("id")
        if own is not None:
            name = _identifier(own, where)
            return name if name in self._ids else None
        question = value.get("question")
        if not isinstance(question, str) or not question.strip():
            raise UserError(
                f"{where}: id is None and question is {question!r}; give one of them as a string"
            )
        ids = self._by_question.get(question.strip(), [])
        if len(ids) > 1:
            raise UserError(
                f"{where}: question is that of rows {', '.join(map(repr, ids))}; give an id"
            )
        return ids[0] if ids else None


def _identifier(own: object, where: str) -> str:
    if isinstance(own, bool) or not isinstance(own, str | int) or own == "":
        raise UserError(f"{where}: id is {own!r}; give a string or a number")
    return str(own)


def _text(value: Fields, where: str) -> str:
    text = value.get("text")
    if not isinstance(text, str):
        given = f"is {text!r}" if "text" in value else "is missing"
        raise UserError(f'{where}: text {given}; give a string, "" if there is none')
    return text


def _reason(value: Fields) -> str:
    return str(value.get("stop_reason") or "")


def _check_benchmark(value: Fields, benchmark: str | None, where: str) -> None:
    own = value.get("benchmark")
    if benchmark is not None and own is not None and own != benchmark:
        raise UserError(
            f"{where}: benchmark is {own!r}, not {benchmark!r}; give the file of {benchmark!r}, or"
            f" --benchmark {own} --scorer NAME to score it as it is"
        )


def _parquet(path: Path) -> Iterator[tuple[str, Fields]]:
    from adafuse.parquet import read_arrow

    table = read_arrow(path)
    if "text" not in table.column_names:
        raise UserError(f"{str(path)!r} has no column 'text'; give a trace of adafuse")
    wanted = {"id", "question", "text", "stop_reason", "benchmark"}
    chosen = table.select([name for name in table.column_names if name in wanted])
    for number, row in enumerate(chosen.to_pylist(), start=1):
        yield f"{path}, row {number}", row


def _lines(path: Path) -> Iterator[tuple[str, Fields]]:
    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
    except OSError as error:
        raise UserError(
            f"predictions file {str(path)!r} cannot be read ({error.strerror}); check its path"
        ) from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"{path}, line {number}", json_object(line, f"{path}, line {number}")


def json_object(line: bytes, where: str) -> Fields:
    """Parse a line that must hold one JSON object.

    Raises:
        UserError: it holds something else.
    """
    try:
        value = json.loads(line)
    except ValueError as error:
        raise UserError(
            f"{where} is not valid JSON ({error}); put one JSON object on each line"
        ) from None
    if not isinstance(value, dict):
        raise UserError(f'{where} is not a JSON object; write {{"id": ..., "text": ...}}')
    return value


def read_exclusions(path: Path, rows: Sequence[Row]) -> frozenset[str]:
    """Read which rows to leave out: an id, a question or a JSON row {"id"} or {"question"} a line.

    A question that several rows share leaves out all of them.

    Raises:
        UserError: no such file, or a line that names no row.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"exclusions {str(path)!r} cannot be read ({error})") from None
    chosen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            chosen |= _named(line.strip(), rows, f"{path}, line {number}")
    return frozenset(chosen)


def _named(line: str, rows: Sequence[Row], where: str) -> set[str]:
    name = _name(line)
    ids = {row.id for row in rows if row.id == name or row.question.strip() == name.strip()}
    if not ids:
        raise UserError(f"{where}: {name!r} is neither id nor question of a row; correct it")
    return ids


def _name(line: str) -> str:
    try:
        value = json.loads(line)
    except ValueError:
        return line
    if isinstance(value, dict):
        value = value.get("id", value.get("question"))
    return str(value)
