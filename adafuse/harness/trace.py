"""The rounds of generated texts as a file that `adafuse show` reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from adafuse.pipeline.provenance import versions
from adafuse.records import Result
from adafuse.traces.atomic import check_writable
from adafuse.traces.schema import RESULT_FIELDS, result_columns
from adafuse.traces.table import write_table


class Trace:
    """Keeps a row per request, named task/document/number, and writes them all."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        check_writable(path)
        self._path = path
        self._settings = settings
        self._rows: dict[str, dict[str, Any]] = {}

    def write(self, results: Mapping[str, Result]) -> None:
        """Write these results behind those of earlier calls; the same name replaces its row."""
        self._rows |= {name: {"id": name, **result_columns(r)} for name, r in results.items()}
        columns = [pa.field("id", pa.string()), *RESULT_FIELDS]
        metadata = {"settings": self._settings, "versions": versions()}
        write_table(self._path, columns, list(self._rows.values()), metadata)
