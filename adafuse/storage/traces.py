"""The columns of a trace: one row per example, its rounds as a nested list."""

from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from adafuse.records.result import Result

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
    pa.field("stop_reason", pa.string()),
    pa.field("error", pa.string()),
    pa.field("traceback", pa.string()),
    pa.field("seconds", pa.float64()),
    pa.field("tokens", _INTS),
    pa.field("prompt_tokens", _INTS),
    pa.field("forwards", _INTS),
    pa.field("rounds", pa.list_(_ROUND)),
]
"""Columns that every trace has for its result, whatever identifies the row."""

_RESULT = TypeAdapter(Result)


def result_columns(result: Result) -> dict[str, Any]:
    """Turn a result into plain values under the names of `RESULT_FIELDS`."""
    values = asdict(result)
    return {field.name: values[field.name] for field in RESULT_FIELDS}


def result_from(row: dict[str, Any]) -> Result:
    """Rebuild the result from a row that was read from JSON or Parquet."""
    return _RESULT.validate_python(row)
