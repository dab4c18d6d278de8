"""Predictions matched to the rows of a benchmark, and rows to exclude; nothing is passed over."""

import logging
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from adafuse.benchmarks.prompts import question_key
from adafuse.benchmarks.records import read_records
from adafuse.benchmarks.rows import PLAIN, Row, as_text, row_id
from adafuse.errors import UserError
from adafuse.storage.files import read_text
from adafuse.storage.yaml_files import parse_json

logger = logging.getLogger(__name__)

_COLUMNS = (
    *("id", "question", "prompt", "text", "stop_reason", "finish_reason"),
    *("fits", "thoughts", "benchmark"),
)
_MARKS = re.compile(r"^\s*<think>|(?:</s>|<\|[a-z_]+\|>|<end_of_turn>)\s*$")
_REASONS = {reason: reason for reason in ("eos", "stop", "length", "error")}
_REASONS |= {"max_tokens": "length", "end_turn": "stop", "stop_sequence": "stop"}  # of others


def read_predictions(
    path: Path, rows: Sequence[Row], *, benchmark: str | None
) -> list[dict[str, Any]]:
    """Return "id", "text", "stop_reason" ("" if unknown), "fits" and "thoughts" of records.

    A prediction without id is matched by its question, or by its place if the file has the
    questions of all rows in their order. One with both must have the question of its row. A column
    `benchmark` of the file must be the given one.
    """
    records = [*read_records(path, "predictions file", _COLUMNS)]
    if not records:
        raise UserError(f"predictions file {str(path)!r} has no predictions; decode again")
    asked = [str(record.get("question")).strip() for _, record in records]
    in_order = asked == [row.question.strip() for row in rows]
    by_id, by_question = {row.id: row for row in rows}, _by_question(rows)
    predictions: dict[str, dict[str, Any]] = {}
    first: dict[str, str] = {}
    for number, (where, record) in enumerate(records):
        _check_record(record, benchmark, where)
        name = row_id(record, PLAIN, where)
        if name is None:
            name = rows[number].id if in_order else _id_of_question(record, by_question, where)
        if name not in by_id:
            raise UserError(
                f"{where}: no row of the references has this id or question; correct or remove it,"
                " or give the predictions of this benchmark"
            )
        if name in predictions:
            fix = _copies(name, rows) or "keep one"
            raise UserError(f"{where}: row {name!r} occurs twice, first in {first[name]}; {fix}")
        _check_question(record, by_id[name], by_question, where)
        first[name] = where.removeprefix(f"{path}, ")
        text = _text(record, where)
        parts = {key: _length(record, key, len(text), where) for key in ("fits", "thoughts")}
        predictions[name] = {"id": name, "text": text, "stop_reason": _reason(record), **parts}
    _check_copies(path, rows, predictions)
    answers = [row["text"][row["thoughts"] or 0 :] for row in predictions.values()]
    if marks := [found[0].strip() for found in map(_MARKS.search, answers) if found]:
        logger.warning(
            "%s: %d of %d texts begin or end with a mark such as %s, which is scored as text;"
            " remove such marks, and thoughts",
            *(path, len(marks), len(answers), marks[0]),
        )
    return list(predictions.values())


def _reason(record: Mapping[str, Any]) -> str:
    """Return why a text ends; vLLM's `stop_reason` is a stop string, an id or nothing."""
    given = (str(record.get(key)).casefold() for key in ("stop_reason", "finish_reason"))
    return next((_REASONS[each] for each in given if each in _REASONS), "")


def _copies(name: str, rows: Sequence[Row]) -> str:
    """Say how to name predictions where several rows of the references had this id."""
    same = [row.id for row in rows if _earlier_id(row) == name]
    if not same:
        return ""
    names = ", ".join(map(repr, [name, *same]))
    return f"several rows of the references have this id: name their predictions {names}, in order"


def _earlier_id(row: Row) -> str | None:
    """Return the id that a row had, if that was the id of an earlier one."""
    return row.id.rpartition("-")[0] if row.renamed else None


def _check_copies(path: Path, rows: Sequence[Row], predicted: Collection[str]) -> None:
    """Refuse one prediction for several rows of one id: whose it is, only its author knows."""
    for row in rows:
        if row.id not in predicted and (name := _earlier_id(row)) in predicted:
            raise UserError(
                f"{path}: several rows of the references have the id {name!r}, and one prediction;"
                f" give one for each ({name!r}, {row.id!r}, ...), or a row with all answers in a"
                " list"
            )


def _length(record: Mapping[str, Any], name: str, most: int, where: str) -> int | None:
    """Return how much of a text a column counts, in characters; None if it says nothing.

    pandas makes a column of numbers with gaps one of floats, and a CSV has only texts. In other
    files, `thoughts` are perhaps the text of them.
    """
    value = record.get(name)
    if value is None or value != value or value == "":
        return None
    digits = value.removesuffix(".0") if isinstance(value, str) else value
    if name == "thoughts" and isinstance(digits, str) and not digits.isdecimal():
        return None
    try:
        count = -1 if isinstance(value, bool) else int(digits)
    except (TypeError, ValueError):
        count = -1
    if not 0 <= count <= most or (isinstance(value, float) and count != value):
        raise UserError(
            f"{where}: {name} is {value!r}, but the text has {most} characters; give a whole number"
            " of them, or leave the column out"
        )
    return count


def _check_record(record: Mapping[str, Any], benchmark: str | None, where: str) -> None:
    given = record.get("benchmark")
    if benchmark is not None and given is not None and given != benchmark:
        raise UserError(
            f"{where}: benchmark is {given!r}, not {benchmark!r}; give the file of {benchmark!r},"
            f" or --benchmark {given} --scorer NAME to score it as it is"
        )


def _check_question(
    record: Mapping[str, Any], row: Row, by_question: Mapping[str, list[str]], where: str
) -> None:
    """Refuse a prediction with the id of one row and the question, or the prompt, of another."""
    own = question_key(row.question)
    for name in ("question", "prompt"):
        given = record.get(name)
        if not isinstance(given, str) or given.strip() == row.question.strip():
            continue
        if given.strip() not in by_question and own in question_key(given):
            continue
        others = (each for each in by_question if each in given)
        if found := given if name == "question" else next(others, None):
            raise UserError(
                f"{where}: {name} has {found!r}, but row {row.id!r} asks {row.question!r}; correct"
                f" the id, or leave out `id` or `{name}`"
            )


def _text(record: Mapping[str, Any], where: str) -> str:
    text = as_text(record.get("text"))
    if not isinstance(text, str):
        if "text" not in record:
            raise UserError(f"{where} has no 'text'; rename the field that holds it so")
        given = record["text"]
        raise UserError(f'{where}: text is {given!r}; give a string, "" if there is none')
    if re.search("[\ud800-\udfff]", text):
        raise UserError(f"{where}: text {text!r:.60} holds half a surrogate pair; remove it")
    return text


def _by_question(rows: Sequence[Row]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        ids[row.question.strip()].append(row.id)
    return ids


def _id_of_question(
    record: Mapping[str, Any], by_question: dict[str, list[str]], where: str
) -> str | None:
    question = record.get("question")
    if not isinstance(question, str) or not question.strip():
        if not {"id", "question"} & record.keys():
            raise UserError(f"{where} has neither 'id' nor 'question'; rename the field of one so")
        raise UserError(
            f"{where}: id is None and question is {question!r}; give one of them as a string"
        )
    ids = by_question.get(question.strip(), [])
    if len(ids) > 1:
        raise UserError(
            f"{where}: question is that of rows {', '.join(map(repr, ids))}; give an id, or the"
            " questions of all rows in their order"
        )
    return ids[0] if ids else None


def read_exclusions(path: Path, rows: Sequence[Row]) -> frozenset[str]:
    """Read which rows to leave out: an id, a question or a JSON row {"id"} or {"question"} a line.

    A question that several rows share leaves out all of them.
    """
    ids, by_question = {row.id for row in rows}, _by_question(rows)
    excluded: set[str] = set()
    for number, line in enumerate(read_text(path, "exclusions").split("\n"), start=1):
        if line.strip():
            name = _name(line.strip())
            named = {name} & ids | set(by_question.get(name.strip(), ()))
            if not named:
                raise UserError(
                    f"{path}, line {number}: {name!r} is neither id nor question of a row; correct"
                    " it"
                )
            excluded |= named
    return frozenset(excluded)


def _name(line: str) -> str:
    try:
        value = parse_json(line)
    except ValueError:
        return line
    if isinstance(value, dict):
        value = value.get("question") if value.get("id") is None else value["id"]
        return str(value)
    return value if isinstance(value, str) else line  # an id such as 1e3
