"""The rounds of generated texts as a file that `adafuse show` and `adafuse report` read."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from adafuse.pipeline.provenance import versions
from adafuse.records import Result
from adafuse.traces.atomic import check_writable
from adafuse.traces.schema import RESULT_FIELDS, result_columns
from adafuse.traces.table import write_arrow

CHUNK = 64
"""So many rows at most are held as Python objects; the others are columns, which take far less."""
_SCHEMA = pa.schema([pa.field("id", pa.string()), *RESULT_FIELDS])


class Trace:
    """Keeps a row per request, named task/document/number, and writes them all."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        check_writable(path)
        self._path = path
        self._settings = settings
        self._columns: list[pa.Table] = [_SCHEMA.empty_table()]
        self._waiting: list[dict[str, Any]] = []
        self._places: dict[str, int] = {}
        self._added = 0
        self._written: dict[str, None] = {}

    def add(self, name: str, result: Result) -> None:
        """Keep the row of a result; it replaces an earlier one of this name."""
        self._places[name] = self._added
        self._added += 1
        self._waiting.append({"id": name, **result_columns(result)})
        if len(self._waiting) == CHUNK:
            self._pack()

    def write(self, names: Iterable[str]) -> None:
        """Write the rows of these names in this order, behind those that were written before."""
        self._pack()
        self._written |= dict.fromkeys(names)
        table = pa.concat_tables(self._columns).take([self._places[name] for name in self._written])
        write_arrow(self._path, table, {"settings": self._settings, "versions": versions()})

    def _pack(self) -> None:
        self._columns.append(pa.Table.from_pylist(self._waiting, schema=_SCHEMA))
        self._waiting.clear()
