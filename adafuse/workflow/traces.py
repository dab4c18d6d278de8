"""The columns of a trace: one row per example, its rounds as a nested list."""

from dataclasses import asdict
from typing import Any

import pyarrow as pa

from adafuse.records import Candidate, Result, Round

_CANDIDATE = pa.struct(
    [
        pa.field("text", pa.string()),
        pa.field("ends", pa.bool_()),
        pa.field("nll", pa.list_(pa.float64())),
        pa.field("fused", pa.float64()),
        pa.field("proposers", pa.list_(pa.int32())),
    ]
)
_ROUND = pa.struct(
    [
        pa.field("candidates", pa.list_(_CANDIDATE)),
        pa.field("selected", pa.int32()),
        pa.field("words", pa.int32()),
        pa.field("margins", pa.list_(pa.list_(pa.float64()))),
    ]
)
RESULT_FIELDS = [
    pa.field("text", pa.string()),
    pa.field("stop_reason", pa.string()),
    pa.field("error", pa.string()),
    pa.field("traceback", pa.string()),
    pa.field("seconds", pa.float64()),
    pa.field("tokens", pa.list_(pa.int32())),
    pa.field("prompt_tokens", pa.list_(pa.int32())),
    pa.field("forwards", pa.list_(pa.int32())),
    pa.field("rounds", pa.list_(_ROUND)),
]
"""Columns that every trace has for its result, whatever identifies the row."""


def result_columns(result: Result) -> dict[str, Any]:
    """Turn a result into plain JSON-ready values under the names of `RESULT_FIELDS`."""
    values = asdict(result)
    return {field.name: values[field.name] for field in RESULT_FIELDS}


def result_from(row: dict[str, Any]) -> Result:
    """Rebuild the result from a row read back from JSON or Parquet."""
    names = [field.name for field in RESULT_FIELDS if field.name != "rounds"]
    rounds = tuple(_round(values) for values in row["rounds"])
    return Result(rounds=rounds, **{name: _tuples(row[name]) for name in names})


def _round(row: dict[str, Any]) -> Round:
    candidates = tuple(
        Candidate(**{name: _tuples(value) for name, value in values.items()})
        for values in row["candidates"]
    )
    return Round(candidates, row["selected"], row["words"], _tuples(row["margins"]))


def _tuples(value: Any) -> Any:
    """Return lists of any depth as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
