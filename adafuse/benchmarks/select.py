"""A part of a benchmark: rows by id, or a seeded sample."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from adafuse.benchmarks.rows import Rows
from adafuse.errors import UserError


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
