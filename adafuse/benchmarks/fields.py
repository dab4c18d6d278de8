"""From one record of any source to a row: which fields hold what, and what is wrong with them."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from adafuse.errors import UserError

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
