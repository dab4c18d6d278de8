"""Rows that `strict` leaves out, because they are worked examples of the prompt."""

import json
from collections.abc import Sequence
from pathlib import Path

from adafuse.benchmarks.rows import Row
from adafuse.errors import UserError


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
