"""Reading a benchmark's source file: every row is checked, every error names its line."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from adafuse.benchmarks.fields import PLAIN, Fields, Row, row_of
from adafuse.benchmarks.records import read_records
from adafuse.errors import UserError

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
