"""A benchmark's rows: fields of records, checked, and a part of them chosen."""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from adafuse.benchmarks.records import Record, read_records
from adafuse.errors import UserError, nearest
from adafuse.options import Section, Text
from adafuse.storage.files import read_text


@dataclass(frozen=True, slots=True)
class Row:
    """One question with its accepted answers; `id` is unique within the benchmark.

    `renamed` rows had an id that occurred before and got a suffix.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    renamed: bool = False


_FILLED = r"\{([^{}]+)\}"


def _closed(spec: str) -> str:
    if left := re.search("[{}]", re.sub(_FILLED, "", spec)):
        raise ValueError(
            f"{spec!r} has a {left[0]!r} that encloses no field; write {{name}}, and braces that"
            " are text into the prompt"
        )
    return spec


class Fields(Section):
    """Paths in a record; one may be nested ("answer.aliases") and enters each list element."""

    question: Annotated[Text, AfterValidator(_closed)] = "question"
    """path of the question, or a template for it (`"{context}\\n{question}"`); change it when it
    has another name"""
    answer: Text = "answer"
    """path of the answer or answers (`answer.aliases`); change it when it has another name"""
    answer_separator: Text | None = None
    """what stands between the accepted answers of one text, such as `|`; change it when a cell of a
    CSV file has several"""
    id: Text | None = None
    """path of the id; `id` by default; change it when it has another name"""
    final_after: Text | None = None
    """mark before the final answer; change it when answers contain reasoning and a final answer
    (`####` in GSM8K)"""


_NAMED = 8  # fields in a message
PLAIN = Fields()
"""The published row form: {"question", "answer", optional "id"}."""


def read_rows(path: Path, limit: int | None = None, fields: Fields = PLAIN) -> tuple[Row, ...]:
    """Read the first `limit` rows of a file of records.

    A row without id gets a hash of its question; an id that occurred before gets a suffix (-2,
    -3, ...) that makes no id of the file, so that no row is merged with another.
    """
    records = islice(read_records(path, "benchmark file"), limit)
    read = [row_of(record, fields, where) for where, record in records]
    rows, taken = dict[str, Row](), {row.id for row in read}
    for row in read:
        unique, copy = row.id, 1
        while unique in rows or (copy > 1 and unique in taken):
            copy += 1
            unique = f"{row.id}-{copy}"
        rows[unique] = row if copy == 1 else replace(row, id=unique, renamed=True)
    if not rows:
        raise UserError(f"{path} has no rows; give a file with one question per row")
    return tuple(rows.values())


def row_of(
    record: Record, fields: Fields, where: str, *, answers_from: Record | None = None
) -> Row:
    """Read one record; `where` begins every error, `answers_from` is another record's answer."""
    question = _question(record, fields.question, where)
    answers = _answers(record if answers_from is None else answers_from, fields, where)
    identifier = row_id(record, fields, where) or hashlib.sha256(question.encode()).hexdigest()[:16]
    return Row(identifier, question, answers)


def row_id(record: Record, fields: Fields, where: str) -> str | None:
    """Return a record's own id as text; None where it has none and `fields` names none."""
    value = _value(record, fields.id, where) if fields.id else record.get("id")
    if value is None and fields.id is None:
        return None
    return _checked(
        value if isinstance(value, float) and value % 1 else as_text(value),
        fields.id or "id",
        where,
    )


def _question(record: Record, spec: str, where: str) -> str:
    if "{" not in spec:
        return _checked(_value(record, spec, where), spec, where)
    return re.sub(_FILLED, lambda slot: _question(record, slot[1], where), spec)


# A list of texts or numbers, or keys with values, as pandas writes them into a cell of CSV.
_LIST = re.compile(
    r"""\s*(?:\[\s*(?:['"].*['"]|-?[\d.]+(?:[\s,]+-?[\d.]+)*)[\s,]*\]|\{'\w+':.*\})\s*""", re.DOTALL
)


def _answers(record: Record, fields: Fields, where: str) -> tuple[str, ...]:
    value = _value(record, fields.answer, where)
    if isinstance(value, str) and fields.answer_separator:
        value = [part.strip() for part in value.split(fields.answer_separator)]
    if isinstance(value, str) and _LIST.fullmatch(value):
        raise UserError(
            f"{where}: {fields.answer} is a list or mapping written as text, {value!r}; give a list"
            " in JSON lines or Parquet, and there [text] if that text is the one answer"
        )
    answers = value if isinstance(value, list) else [value]
    if not answers:
        raise UserError(f"{where}: {fields.answer} is an empty list; give at least one answer")
    texts = tuple(_checked(as_text(answer), fields.answer, where) for answer in answers)
    mark = fields.final_after
    return texts if mark is None else tuple(_with_final(text, mark, where) for text in texts)


def joined(rows: Mapping[str, Sequence[str]], owner: str) -> str | None:
    """Return a warning about answers that look like several in one text; None if there are none.

    `rows` holds the accepted answers by id. Some sentences have a semicolon.
    """
    for mark, usual in {"|": 0, ";": 0.1}.items():
        found = [own[0] for own in rows.values() if len(own) == 1 and mark in own[0]]
        if len(found) > usual * len(rows):
            return (
                f"{owner}: {len(found)} of {len(rows)} rows have one accepted answer with {mark!r}"
                f" in it, such as {found[0][:100]!r}; if these are several, set"
                f" answer_separator in its fields to {mark!r}"
            )
    return None


def as_text(value: object) -> object:
    """Return a number as text, and all else as it is.

    Where a column has gaps, pandas makes 7 the float 7.0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return value
    return str(int(value)) if value == int(value) else repr(value)


def _with_final(text: str, mark: str, where: str) -> str:
    """Write the final answer in words, as the published files do; drop calculator annotations."""
    steps, _, final = text.rpartition(mark)
    if mark not in text or not final.strip():
        raise UserError(f"{where}: answer {text[-40:]!r} has nothing after {mark!r}; correct it")
    return f"{re.sub('<<[^<>]*>>', '', steps).rstrip()}\nTherefore, the answer is {final.strip()}"


def _value(record: Record, path: str, where: str) -> Any:
    value: Any = record
    for name in [path] if path in record else path.split("."):
        try:
            many = isinstance(value, list)
            value = [element[name] for element in value] if many else value[name]
        except (KeyError, TypeError):
            there = ", ".join(map(repr, list(record)[:_NAMED])) or "none"
            raise UserError(
                f"{where} has no {path!r}; add it (its fields: {there}){nearest(path, record)}"
            ) from None
    return value


def _checked(text: object, field: str, where: str) -> str:
    if not isinstance(text, str):
        raise UserError(f"{where}: {field} is {text!r}; it must be a string")
    if not text.strip():
        raise UserError(f"{where}: {field} is empty; fill it in or remove the row")
    if match := re.search("[\ud800-\udfff\0]", text):
        what = "NUL" if match[0] == "\0" else "half a surrogate pair"
        raise UserError(f"{where}: {field} {text!r} holds {what}; remove it")
    return text


def with_ids(rows: Sequence[Row], ids: Iterable[str], owner: str) -> tuple[Row, ...]:
    """Return the rows of those ids, in file order; each must be there."""
    chosen = set(ids)
    if unknown := chosen - {row.id for row in rows}:
        raise UserError(f"{owner}: no row has the id {min(unknown)!r}; correct `ids`")
    return tuple(row for row in rows if row.id in chosen)


def sample(
    rows: Sequence[Row], size: int, seed: int, owner: str, *, skip: int = 0
) -> tuple[Row, ...]:
    """Return `size` rows, in file order, without the sample of the first `skip`.

    Which ones is decided by a hash of seed and id: the same everywhere, and a row that is added
    or removed changes the sample by one row at most.
    """
    if skip + size > len(rows):
        wanted_size = f"{size} after {skip} skipped ones" if skip else str(size)
        raise UserError(f"{owner}: sample.size {wanted_size} is more than its {len(rows)} rows")
    ranked = sorted(rows, key=lambda row: hashlib.sha256(f"{seed}\0{row.id}".encode()).digest())
    return with_ids(rows, (row.id for row in ranked[skip : skip + size]), owner)


USUAL_COPIES = 0.01


def copied(rows: Sequence[tuple[str, Sequence[str]]], owner: str) -> str | None:
    """Return a warning if more of some questions with answers are copies than is usual."""
    copies = len(rows) - len({(question, *answers) for question, answers in rows})
    if copies <= USUAL_COPIES * len(rows):
        return None
    return (
        f"{owner}: {copies} of {len(rows)} rows are copies of earlier ones, but intervals and tests"
        " take rows for independent; remove them"
    )


def read_ids(path: Path) -> tuple[str, ...]:
    """Read ids, one a line."""
    lines = (line.strip(" \t") for line in read_text(path, "ids file").split("\n"))
    ids = tuple(filter(None, lines))
    if not ids:
        raise UserError(f"ids file {str(path)!r} has no ids; write one per line")
    return ids
