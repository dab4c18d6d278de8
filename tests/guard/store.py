"""The record's files and the differences between two records.

A record is a table of decoded rows, `ROWS.parquet`, and tables of scores, `TABLES.json.gz`.
"""

import gzip
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.guard.adapter import Table, tables, traces
from tests.guard.fingerprint import TOLERANCE, Decoded, digest, fingerprint

DATA = Path(__file__).parent / "data"
FIELDS = {
    "text": pa.int32(),
    "stop": pa.string(),
    "counts": pa.int32(),
    "candidates": pa.int32(),
    "choices": pa.int32(),
    "nll": pa.float32(),
    "margins": pa.float32(),
}

Row = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """Decoded rows by the run that they are of, and tables by name."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)

    @classmethod
    def of_decoded(cls, runs: Iterable[tuple[str, list[tuple[str, Decoded]]]]) -> "Record":
        """What was decoded, by run; each text has an id."""
        record = cls()
        for name, decoded in runs:
            record.rows[name] = [{"id": key, **fingerprint(one)} for key, one in decoded]
            ids = digest([key for key, _ in decoded], 4)
            record.tables[f"ids/{name}"] = [{"n": len(decoded), "ids": ids}]
        return record

    @classmethod
    def of_results(cls, results: Path) -> "Record":
        """What a results folder of the workflow holds."""
        record = cls.of_decoded(traces(results))
        return cls(record.rows, record.tables | tables(results))

    @classmethod
    def load(cls, part: str) -> "Record":
        """What is stored of a part."""
        record = cls(tables=json.loads(gzip.decompress((DATA / f"{part}.json.gz").read_bytes())))
        for row in pq.read_table(DATA / f"{part}.parquet").to_pylist():
            record.rows.setdefault(row.pop("run"), []).append(row)
        return record

    def store(self, part: str) -> None:
        """Write the two files of a part."""
        rows = [(name, row) for name in sorted(self.rows) for row in self.rows[name]]
        columns = {"run": pa.array([name for name, _ in rows], pa.string())}
        for name, kind in FIELDS.items():
            columns[name] = pa.array([row[name] for _, row in rows], kind)
        plain = [name for name, kind in FIELDS.items() if kind != pa.string()]
        pq.write_table(
            pa.table(columns), DATA / f"{part}.parquet",
            compression="zstd", compression_level=19, row_group_size=1 << 20,
            use_dictionary=["run", "stop"], use_byte_stream_split=plain,
            write_statistics=False, store_schema=False,
        )  # fmt: skip
        text = json.dumps(self.tables, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        (DATA / f"{part}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def differences(now: Record, record: Record) -> Iterator[str]:
    """Say, a line each, what is not as it is in the record; what is new is no difference."""
    for name, table in record.tables.items():
        if name not in now.tables:
            yield f"{name}: missing"
        else:
            yield from _table_differences(name, now.tables[name], table)
    for name, rows in record.rows.items():
        if name in now.rows and now.tables.get(f"ids/{name}") == record.tables[f"ids/{name}"]:
            for new, old in zip(now.rows[name], rows, strict=True):
                yield from _differences(f"{name}, row {new['id']}", new, old, digests=True)


def _table_differences(name: str, now: Table, record: Table) -> Iterator[str]:
    if len(now) != len(record):
        yield f"{name}: {len(now)} lines, recorded are {len(record)}"
        return
    for number, (new, old) in enumerate(zip(now, record, strict=True), 1):
        title = " ".join(str(old[key]) for key in _NAMES if old.get(key))
        where = f"{name}, line {number}" + (f" ({title})" if title else "")
        if new.keys() != old.keys():
            changed = ", ".join(sorted(new.keys() ^ old.keys()))
            yield f"{where}: on one side only: {changed}"
        yield from _differences(where, new, {key: old[key] for key in old if key in new})


_NAMES = ("benchmark", "protocol", "run", "baseline")


def _differences(where: str, new: Row, old: Row, *, digests: bool = False) -> Iterator[str]:
    for key, value in old.items():
        if not _same(new[key], value):
            hidden = digests and isinstance(value, int)
            yield f"{where}: {key}" + ("" if hidden else f" is {new[key]}, recorded is {value}")


def _same(new: Any, old: Any) -> bool:
    if new == old or isinstance(old, int):
        return bool(new == old)
    one, other = _number(new), _number(old)
    if one is None or other is None:
        return False
    return math.isclose(one, other, rel_tol=TOLERANCE / 10, abs_tol=TOLERANCE)


def _number(value: Any) -> float | None:
    """Read a number, or the text of one."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
