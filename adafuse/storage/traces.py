"""The one writer of traces: a row per example, and what all say of how they came about."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from adafuse.errors import UserError
from adafuse.records.result import Prompt, Result, as_text
from adafuse.storage.parquet import read_arrow, read_schema, write_arrow
from adafuse.storage.provenance import source_commit, this_machine
from adafuse.version import versions

_INTS, _FLOATS = pa.list_(pa.int32()), pa.list_(pa.float64())
_CANDIDATE = pa.struct(
    {
        "text": pa.string(),
        "ends": pa.bool_(),
        "nll": _FLOATS,
        "fused": pa.float64(),
        "proposers": _INTS,
    }
)
_ROUND = pa.struct(
    {
        "candidates": pa.list_(_CANDIDATE),
        "selected": pa.int32(),
        "words": pa.int32(),
        "margins": pa.list_(_FLOATS),
        "weights": _FLOATS,
    }
)
RESULT_FIELDS = [
    pa.field("text", pa.string()),
    pa.field("fits", pa.int32()),
    pa.field("thoughts", pa.int32()),
    pa.field("stop_reason", pa.string()),
    pa.field("error", pa.string()),
    pa.field("traceback", pa.string()),
    pa.field("seconds", pa.float64()),
    pa.field("tokens", _INTS),
    pa.field("prompt_tokens", _INTS),
    pa.field("forwards", _INTS),
    pa.field("evaluated", _INTS),
    pa.field("rounds", pa.list_(_ROUND)),
]
"""Columns that every trace has for its result, whatever identifies the row."""
PROMPT_FIELDS = [pa.field("id", pa.string()), pa.field("prompt", pa.string()), *RESULT_FIELDS]
"""Columns of a trace of prompts that belong to no benchmark of a configuration."""

_TEXTS = ("id", "text", "stop_reason")
_NEEDED = ("id", *(each.name for each in fields(Result) if each.default is MISSING))

REQUIRED_SETTINGS = {"models", "chat_date", "method"}
"""What the settings of every trace name, besides options and limits."""
ORIGIN = ("versions", "git", "place")
"""What a trace says of the code and the machine that decoded; merged ones say it per shard."""


def write_trace(
    path: Path,
    table: pa.Table,
    settings: Mapping[str, Any],
    plugins: Mapping[str, str],
    *,
    settings_key: str = "settings",
    **others: Any,
) -> None:
    """Write rows that were decoded for this trace, and how they came about.

    That is the `settings` they were decoded with, the versions of packages, with the code of
    `plugins`, the commit of AdaFuse and the machine; `others` is what only this kind of trace says.
    """
    assert settings.keys() >= REQUIRED_SETTINGS, settings.keys()
    used = {**versions(), **plugins}
    origin = dict(zip(ORIGIN, (used, source_commit(), this_machine()), strict=True))
    write_arrow(path, table, {**others, settings_key: dict(settings), **origin})


def write_joined(
    path: Path, table: pa.Table, sources_key: str, sources: object, **others: Any
) -> None:
    """Write rows of other traces: the shards of a run, merged, or what a selection chose.

    `sources` says which, in place of how the rows came about: the metadata of each shard, or the
    digest of each run; `others` is what only this kind of trace says.
    """
    assert sources
    write_arrow(path, table, {**others, sources_key: sources})


_RESULT = TypeAdapter(Result)


def result_columns(result: Result) -> dict[str, Any]:
    """Turn a result into plain values under the names of `RESULT_FIELDS`."""
    values = asdict(result)
    return {field.name: values[field.name] for field in RESULT_FIELDS}


def prompt_row(name: str, prompt: Prompt, result: Result) -> dict[str, Any]:
    """Return a row with the columns `PROMPT_FIELDS`."""
    return {"id": name, "prompt": as_text(prompt), **result_columns(result)}


def check_trace(path: Path) -> None:
    """Refuse a Parquet file without what every trace has: an id, and all of a result that matters.

    Raises:
        UserError: a column is missing, or is not text where it must be, or has gaps there.
    """
    schema = read_schema(path, _NEEDED)
    for name in _TEXTS:
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            column = f"column {name!r} of {str(path)!r}"
            raise UserError(f"{column} has type {kind}, not text; give a file of adafuse")
    _check_gaps(path, read_arrow(path, _TEXTS))


def _check_gaps(path: Path, table: pa.Table) -> None:
    for name in table.column_names:
        if name in _NEEDED and table[name].null_count:
            row = table[name].is_null().index(True).as_py()
            place = f"{path}, row {row} (counted from 0)"
            raise UserError(f"{place}: {name} is None; give a file of adafuse")


def places(path: Path, table: pa.Table) -> dict[str, int]:
    """Return the number of each row of a trace by its id.

    Raises:
        UserError: an id occurs twice, as where somebody joined traces, or a value is missing.
    """
    _check_gaps(path, table)
    names = list(map(str, table["id"].to_pylist()))
    place = {name: row for row, name in enumerate(names)}
    if len(place) < len(names):
        twice = next(name for row, name in enumerate(names) if place[name] != row)
        raise UserError(f"{str(path)!r} has id {twice!r} twice; give a trace with each row once")
    return place


def result_from(row: dict[str, Any]) -> Result:
    """Rebuild the result from a row that was read from JSON or Parquet.

    Raises:
        UserError: a value is missing or of another type.
    """
    try:
        return _RESULT.validate_python(row)
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"]))
        said = f"no {place}" if wrong["type"] == "missing" else f"{wrong['input']!r:.80} as {place}"
        raise UserError(f"example {row['id']!r} has {said}; give a file of adafuse") from None
