"""Parquet files whose metadata says how their rows came about."""

import io
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

from adafuse.errors import UserError
from adafuse.storage.files import atomic_path

_METADATA = b"adafuse"


def write_rows(
    path: Path,
    columns: Sequence[pa.Field],
    rows: Sequence[dict[str, Any]],
    metadata: dict[str, Any],
) -> None:
    """Write rows atomically, with a value for each column; `read_metadata` returns `metadata`."""
    write_arrow(path, as_table(columns, rows), metadata)


def as_table(columns: Iterable[pa.Field], rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Return rows, with a value for each column, as an Arrow table.

    They go through JSON: where Arrow converts Python objects, it imports pandas if there is one,
    which takes every step of the workflow a second.
    """
    schema = pa.schema(list(columns))
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    if not lines:
        return pa.Table.from_batches([], schema)
    return pa.json.read_json(
        io.BytesIO(b"".join(lines)),
        pa.json.ReadOptions(use_threads=False, block_size=max(map(len, lines))),
        pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
    )


def write_arrow(path: Path, table: pa.Table, metadata: dict[str, Any]) -> None:
    """Write an Arrow table as `write_rows` does."""
    described = table.replace_schema_metadata({_METADATA: json.dumps(metadata)})
    with atomic_path(path) as temporary:
        pq.write_table(described, temporary.absolute(), compression="zstd")  # fills in no `~`


def read_rows(path: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a file, or only some of their columns.

    Raises:
        UserError: not a readable Parquet file, or a column that it does not have.
    """
    return list(read_arrow(path, columns).to_pylist())


def iterate_rows(path: Path, columns: Collection[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file that may be large, or those of `columns` that it has."""
    with _opened(path) as file:
        names = [name for name in file.schema_arrow.names if columns is None or name in columns]
        for batch in file.iter_batches(columns=names):
            narrow = [(f.name, f.type) for f in batch.schema if "float" in str(f.type)]
            try:
                rows = batch.to_pylist()
            except (ValueError, LookupError, OverflowError) as error:  # a date, a text
                raise UserError(
                    f"{str(path)!r} has a value that Python has no form for ({error}); leave out"
                    " its column"
                ) from None
            for row in rows:
                yield row | {name: written(row[name], kind) for name, kind in narrow}


def written(value: Any, kind: pa.DataType) -> Any:
    """Return 0.1 of 16 or 32 bits as 0.1, not as 0.10000000149011612, also in lists and structs."""
    if value is None or pa.types.is_float64(kind):
        return value
    if pa.types.is_floating(kind):
        return float(str(kind.to_pandas_dtype()(value)))
    if pa.types.is_struct(kind):
        return {field.name: written(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(written(k, kind.key_type), written(v, kind.item_type)) for k, v in value]
    if isinstance(value, list):  # of any of the kinds of lists
        return [written(each, kind.value_type) for each in value]
    return value


def read_arrow(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a file as an Arrow table; see `read_rows`."""
    if columns is not None:
        read_schema(path, columns)
    with _opened(path) as file:
        return file.read(columns=list(columns) if columns is not None else None)


def read_schema(path: Path, columns: Iterable[str]) -> pa.Schema:
    """Return the types of a file that has these columns; see `read_rows`."""
    with _opened(path) as file:
        schema = file.schema_arrow
    if missing := [name for name in columns if name not in schema.names]:
        raise UserError(f"{str(path)!r} has no column {missing[0]!r}; give a file of adafuse")
    return schema


def read_metadata(path: Path) -> dict[str, Any]:
    """Return what `write_rows` was given as metadata.

    Raises:
        UserError: not a readable Parquet file, or one that adafuse did not write.
    """
    with _opened(path) as file:
        schema = file.schema_arrow.metadata or {}
    with suppress(ValueError, RecursionError):
        metadata = json.loads(schema.get(_METADATA, b"null"))
        if isinstance(metadata, dict):
            return metadata
    raise UserError(f"{str(path)!r} was not written by adafuse; give a file that was")


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path.absolute()) as file:
            names = file.schema_arrow.names
            if twice := [name for name in names if names.count(name) > 1]:
                raise UserError(f"{str(path)!r} has two columns {twice[0]!r}; rename one")
            yield file
    except FileNotFoundError:
        fix = "does not exist; check its path"
        if path.with_suffix(".journal").is_file():
            fix = "is not finished; run its command again (`adafuse generate` with --resume)"
        raise UserError(f"file {str(path)!r} {fix}") from None
    except (OSError, pa.ArrowException) as error:
        if path.suffix != ".parquet":
            raise UserError(
                f"{str(path)!r} is not a trace; give a .parquet file of `adafuse generate --out`,"
                " or traces/BENCHMARK/RUN.parquet of a results folder"
            ) from None
        reason = str(error).split("\n")[0].rstrip(".")
        raise UserError(
            f"{str(path)!r} is not a readable Parquet file ({reason}); replace it, or delete it to"
            " have it made again"
        ) from None
