"""Parquet files whose metadata says how their rows came about."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from adafuse.errors import UserError
from adafuse.files import atomic_path

METADATA_KEY = b"adafuse"


def write_table(
    path: Path,
    columns: Sequence[pa.Field],
    rows: Sequence[dict[str, Any]],
    metadata: dict[str, Any],
) -> None:
    """Write rows atomically, with metadata (JSON-ready) that `read_metadata` returns."""
    write_arrow(path, pa.Table.from_pylist(list(rows), schema=pa.schema(list(columns))), metadata)


def write_arrow(path: Path, table: pa.Table, metadata: dict[str, Any]) -> None:
    described = table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata)})
    with atomic_path(path) as temporary:
        pq.write_table(described, temporary, compression="zstd")


def read_rows(path: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a file, or only some of their columns."""
    return list(read_arrow(path, columns).to_pylist())


def read_arrow(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    file = _open(path)
    missing = [name for name in columns or () if name not in file.schema_arrow.names]
    if missing:
        raise UserError(f"{str(path)!r} has no column {missing[0]!r}; give a file of adafuse")
    return file.read(columns=list(columns) if columns is not None else None)


def column_names(path: Path) -> list[str]:
    return list(_open(path).schema_arrow.names)


def read_metadata(path: Path) -> dict[str, Any]:
    """Return what `write_table` was given as metadata."""
    found = _open(path).schema_arrow.metadata or {}
    if METADATA_KEY not in found:
        raise UserError(f"{str(path)!r} was not written by adafuse; give a file that was")
    metadata: dict[str, Any] = json.loads(found[METADATA_KEY])
    return metadata


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise UserError(f"file {str(path)!r} does not exist; check its path") from None
    except (OSError, pa.ArrowException) as error:
        if path.suffix != ".parquet":
            raise UserError(
                f"{str(path)!r} is not a trace; give a .parquet file of `adafuse generate --out`,"
                " or traces/BENCHMARK/RUN.parquet of a results folder"
            ) from None
        reason = str(error).split("\n")[0].rstrip(".")
        raise UserError(
            f"{str(path)!r} is not a readable Parquet file ({reason}); delete it and make it again"
        ) from None
