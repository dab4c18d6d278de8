"""Reading a benchmark's source file: every row is checked, every error names its line."""

import codecs
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from adafuse.errors import UserError


@dataclass(frozen=True, slots=True)
class Row:
    """One question with its accepted answers; `id` is unique within the benchmark."""

    id: str
    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a source in file order; `duplicates` of them got a suffix to their id."""

    rows: tuple[Row, ...]
    duplicates: int


def read_rows(path: Path, limit: int | None = None) -> Rows:
    """Read the first `limit` rows of a JSONL file of {"question", "answer", optional "id"}.

    A row without id gets a hash of its question; an id that occurred before gets a suffix (-2,
    -3, ...), so that no row is merged with another.

    Raises:
        UserError: a file that cannot be read or has no rows, or a row that is not of this form.
    """
    taken: set[str] = set()
    rows: list[Row] = []
    duplicates = 0
    for row in islice(_parsed(path), limit):
        unique = _unused(row.id, taken)
        duplicates += unique != row.id
        taken.add(unique)
        rows.append(Row(unique, row.question, row.answers))
    if not rows:
        raise UserError(f"{path} has no rows; give a JSONL file with a question a line")
    return Rows(tuple(rows), duplicates)


def _parsed(path: Path) -> Iterator[Row]:
    # Only b"\n" ends a line: JSON strings may hold U+2028 and other separators as they are.
    lines = _read(path).removeprefix(codecs.BOM_UTF8).split(b"\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _row(line, f"{path}, line {number}")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(
            f"benchmark file {str(path)!r} cannot be read ({error.strerror}); check its path"
        ) from None


def _row(line: bytes, where: str) -> Row:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where} is no JSON ({error}); put one JSON object on each line") from None
    if not isinstance(value, dict):
        raise UserError(f'{where} is no JSON object; write {{"question": ..., "answer": ...}}')
    question = _text(value, "question", where)
    return Row(_id(value, question, where), question, _answers(value, where))


def _text(value: dict[str, Any], field: str, where: str) -> str:
    if field not in value:
        raise UserError(f"{where} has no {field!r}; add it")
    return _checked(value[field], field, where)


def _checked(text: object, field: str, where: str) -> str:
    if not isinstance(text, str):
        raise UserError(f"{where}: {field} is {text!r}; it must be a string")
    if not text.strip():
        raise UserError(f"{where}: {field} is empty; fill it in or remove the row")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{where}: {field} {text!r} holds half a surrogate pair; remove it"
        ) from None
    return text


def _answers(value: dict[str, Any], where: str) -> tuple[str, ...]:
    answer = value.get("answer")
    if not isinstance(answer, list):
        return (_text(value, "answer", where),)
    if not answer:
        raise UserError(f"{where}: answer is an empty list; give at least one answer")
    return tuple(_checked(each, "answer", where) for each in answer)


def _id(value: dict[str, Any], question: str, where: str) -> str:
    own = value.get("id")
    if own is None:
        return hashlib.sha256(question.encode()).hexdigest()[:16]
    if isinstance(own, int) and not isinstance(own, bool):
        return str(own)
    return _checked(own, "id", where)


def _unused(identifier: str, taken: set[str]) -> str:
    unique, copy = identifier, 1
    while unique in taken:
        copy += 1
        unique = f"{identifier}-{copy}"
    return unique
