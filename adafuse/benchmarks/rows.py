"""A benchmark's rows: records of a file, their fields checked, and a part of them chosen."""

import codecs
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from adafuse.errors import UserError

Record = tuple[str, Any]
"""Where a record stands, for errors, and what it holds."""


def read_records(path: Path) -> Iterator[Record]:
    """Read a file as its ending says: `.parquet`, `.json` (a list, or lines), else JSON lines.

    Raises:
        UserError: the file, or a line of it, cannot be read.
    """
    if path.suffix == ".parquet":
        return _parquet(path)
    data = _read(path).removeprefix(codecs.BOM_UTF8)
    if path.suffix == ".json" and data.lstrip().startswith(b"["):
        return _json(path, data)
    return _lines(path, data)


def at_row(source: object, number: int) -> str:
    """Name a record that has no line of its own."""
    return f"{source}, row {number} (counted from 0)"


def _lines(path: Path, data: bytes) -> Iterator[Record]:
    # Only b"\n" ends a line: JSON strings may hold U+2028 and other separators as they are.
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            yield where, _parsed(line, where)


def _parsed(line: bytes, where: str) -> object:
    try:
        return json.loads(line)
    except ValueError as error:
        raise UserError(f"{where} is no JSON ({error}); put one JSON object on each line") from None


def _json(path: Path, data: bytes) -> Iterator[Record]:
    try:
        values = json.loads(data)
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error}); give a list of objects") from None
    for number, value in enumerate(values):
        yield at_row(path, number), value


def _parquet(path: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                for value in batch.to_pylist():
                    yield at_row(path, number), value
                    number += 1
    except (OSError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"benchmark file {str(path)!r} cannot be read ({reason})") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(
            f"benchmark file {str(path)!r} cannot be read ({error.strerror}); check its path"
        ) from None


_PLACE = re.compile(r"\{([^{}]+)\}")
_CALCULATION = re.compile(r"<<[^<>]*>>")


@dataclass(frozen=True, slots=True)
class Row:
    """One question with its accepted answers; `id` is unique within the benchmark.

    `renamed` rows had an id that occurred before and got a suffix.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    renamed: bool = False


@dataclass(frozen=True, slots=True)
class Fields:
    """Where a record holds what.

    A path may be nested ("answer.aliases") and goes into each element of a list. `question` may
    be a frame ("{context}\\n{question}"). Without `id`, a field of that name is taken if there is
    one. `final_after` is the mark before the final answer ("####" in GSM8K).
    """

    question: str = "question"
    answer: str = "answer"
    id: str | None = None
    final_after: str | None = None


PLAIN = Fields()
"""The published row form: {"question", "answer", optional "id"}."""


def row_of(
    record: object, fields: Fields, where: str, *, answers_from: Mapping[str, Any] | None = None
) -> Row:
    """Read one record; `where` begins every error, `answers_from` is another record's answer.

    Raises:
        UserError: a field is missing, empty or not of its type.
    """
    if not isinstance(record, Mapping):
        raise UserError(f'{where} is no JSON object; write {{"question": ..., "answer": ...}}')
    question = _question(record, fields.question, where)
    answers = _answers(record if answers_from is None else answers_from, fields, where)
    return Row(row_id(record, fields, where) or _hash(question), question, answers)


def row_id(record: Mapping[str, Any], fields: Fields, where: str) -> str | None:
    """Return a record's own id as text; None where it has none and none was asked for.

    Raises:
        UserError: the id is missing, empty, or neither a string nor a whole number.
    """
    own = _value(record, fields.id, where) if fields.id else record.get("id")
    if own is None and fields.id is None:
        return None
    if isinstance(own, int) and not isinstance(own, bool):
        return str(own)
    return _checked(own, fields.id or "id", where)


def _hash(question: str) -> str:
    return hashlib.sha256(question.encode()).hexdigest()[:16]


def _question(record: Mapping[str, Any], spec: str, where: str) -> str:
    if "{" not in spec:
        return _checked(_value(record, spec, where), spec, where)
    return _PLACE.sub(lambda place: _question(record, place[1], where), spec)


def _answers(record: Mapping[str, Any], fields: Fields, where: str) -> tuple[str, ...]:
    found = _value(record, fields.answer, where)
    several = found if isinstance(found, list) else [found]
    if not several:
        raise UserError(f"{where}: {fields.answer} is an empty list; give at least one answer")
    texts = tuple(_checked(each, fields.answer, where) for each in several)
    if fields.final_after is None:
        return texts
    return tuple(_with_final(text, fields.final_after, where) for text in texts)


def _with_final(text: str, mark: str, where: str) -> str:
    """Say the final answer in words, as the published files do; drop calculator annotations."""
    steps, found, final = text.rpartition(mark)
    if not found or not final.strip():
        raise UserError(f"{where}: answer {text[-40:]!r} has nothing after {mark!r}; correct it")
    return f"{_CALCULATION.sub('', steps).rstrip()}\nTherefore, the answer is {final.strip()}"


def _value(record: Mapping[str, Any], path: str, where: str) -> Any:
    value: Any = record
    for name in path.split("."):
        if isinstance(value, list):
            value = list(_each(value, name, path, where))
        elif isinstance(value, Mapping) and name in value:
            value = value[name]
        else:
            raise UserError(f"{where} has no {path!r}; add it")
    return value


def _each(values: list[Any], name: str, path: str, where: str) -> Iterator[Any]:
    for value in values:
        if not isinstance(value, Mapping) or name not in value:
            raise UserError(f"{where} has no {path!r}; add it")
        yield value[name]


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


__all__ = ["Row", "Rows", "read_rows"]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a source in file order."""

    rows: tuple[Row, ...]

    @property
    def duplicates(self) -> int:
        """How many rows got a suffix to their id."""
        return sum(row.renamed for row in self.rows)


def read_rows(path: Path, limit: int | None = None, fields: Fields = PLAIN) -> Rows:
    """Read the first `limit` rows of a file: JSON lines, a JSON list or Parquet.

    A row without id gets a hash of its question; an id that occurred before gets a suffix (-2,
    -3, ...), so that no row is merged with another.

    Raises:
        UserError: a file that cannot be read or has no rows, or a row that is not of this form.
    """
    found = (row_of(record, fields, where) for where, record in read_records(path))
    rows = _with_unique_ids(islice(found, limit))
    if not rows:
        raise UserError(f"{path} has no rows; give a file with a question a row")
    return Rows(rows)


def _with_unique_ids(rows: Iterable[Row]) -> tuple[Row, ...]:
    taken: set[str] = set()
    named: list[Row] = []
    for row in rows:
        unique = _unused(row.id, taken)
        taken.add(unique)
        named.append(row if unique == row.id else replace(row, id=unique, renamed=True))
    return tuple(named)


def _unused(identifier: str, taken: set[str]) -> str:
    unique, copy = identifier, 1
    while unique in taken:
        copy += 1
        unique = f"{identifier}-{copy}"
    return unique


def with_ids(rows: Rows, ids: Sequence[str], owner: str) -> Rows:
    """Take the rows of those ids, in file order.

    Raises:
        UserError: an id that no row has.
    """
    wanted = set(ids)
    if strangers := wanted - {row.id for row in rows.rows}:
        raise UserError(f"{owner}: no row has the id {min(strangers)!r}; correct `ids`")
    return Rows(tuple(row for row in rows.rows if row.id in wanted))


def sample(rows: Rows, size: int, seed: int, owner: str) -> Rows:
    """Take `size` rows, in file order.

    Which ones is decided by a hash of seed and id: the same everywhere, and a row that is added
    or removed changes the sample by one row at most.

    Raises:
        UserError: there are fewer rows.
    """
    if size > len(rows.rows):
        raise UserError(f"{owner}: sample.size {size} is more than its {len(rows.rows)} rows")
    ranked = sorted(
        rows.rows, key=lambda row: hashlib.sha256(f"{seed}\0{row.id}".encode()).digest()
    )
    return with_ids(rows, [row.id for row in ranked[:size]], owner)


def read_ids(path: Path) -> tuple[str, ...]:
    """Read ids, one a line.

    Raises:
        UserError: the file cannot be read as text, or names no id.
    """
    try:
        lines = path.read_bytes().decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"ids file {str(path)!r} cannot be read: {error}") from None
    if not (ids := tuple(line.strip() for line in lines if line.strip())):
        raise UserError(f"ids file {str(path)!r} names no id; write one a line")
    return ids
