"""The raw records of a local file, JSON lines, a JSON list or Parquet, each with its place."""

import codecs
import json
from collections.abc import Iterator
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
