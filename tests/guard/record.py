"""The record of what is decoded, scored and tabulated: one Parquet file a part, of keys and values.

What is discrete is digested. Numbers never are, because machines differ in the last bits: those of
a row are summed with weights, so that a change of any one shows, and compared up to `TOLERANCE`.
"""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DATA = Path(__file__).parent / "data"
TOLERANCE = 1e-5
UNSTABLE = ("seconds", "mean_relative_to_members", "devices", "torch")
"""Columns that no two runs or machines share, by a part of their names."""

Record = dict[str, str]
"""Values by keys such as "toy_qa/adafuse, row 17: text"."""


def of_results(results: Path) -> Record:
    """Return the record of a results folder: its traces, tables, experiments and scores."""
    record: Record = {}
    for file in results.glob("traces/*/*.parquet"):
        rows = ((row["id"], row) for row in pq.read_table(file).to_pylist())
        record |= of_rows(f"{file.parent.name}/{file.stem}", rows)
    tables = {*results.glob("tables/*.csv")} - {results / "tables/metrics.csv"}  # as the scores are
    for file in [*tables, *results.glob("experiments/*.csv")]:
        with file.open(newline="", encoding="utf-8") as stream:
            for number, line in enumerate(csv.DictReader(stream), 1):
                record |= _cells(f"{file.parent.name}/{file.stem}, line {number}", line)
    for file in results.glob("scores/*/*/*.json"):
        name = "/".join(file.with_suffix("").parts[-4:])
        record |= _cells(name, _flat(json.loads(file.read_text(encoding="utf-8"))))
        outcomes = pq.read_table(file.with_suffix(".outcomes.parquet")).to_pylist()
        texts = sorted((row["id"], row["hypothesis"], row["references"]) for row in outcomes)
        values = [row["value"] for row in sorted(outcomes, key=lambda row: str(row["id"]))]
        record |= {f"{name}: texts": _digest(texts), f"{name}: values": _projection(values)}
    return record


def of_rows(run: str, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Record:
    """Return the record of decoded rows with their ids; each has the fields of a `Result`."""
    record: Record = {}
    for identifier, row in rows:
        rounds = row["rounds"]
        pools = [each["candidates"] for each in rounds]
        nlls = [value for pool in pools for c in pool for value in (*c["nll"], c["fused"])]
        margins = [value for each in rounds for read in each["margins"] for value in read]
        odd = [(n, repr(value)) for n, value in enumerate(nlls) if not math.isfinite(value)]
        trace = [
            [row["stop_reason"], list(row["tokens"]), list(row["prompt_tokens"]), odd],
            [[(c["text"], c["ends"], list(c["proposers"])) for c in pool] for pool in pools],
            [(each["selected"], each["words"]) for each in rounds],
            [[len(read) for read in each["margins"]] for each in rounds],
        ]
        values = {"text": _digest(row["text"]), "trace": _digest(trace)}
        values |= {"nll": _projection(nlls), "margins": _projection(margins)}
        record |= {f"{run}, row {identifier}: {name}": value for name, value in values.items()}
    return record


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = isinstance(value, Mapping)
        flat |= _flat(value, f"{before}{name}.") if inner else {f"{before}{name}": value}
    return flat


def _cells(name: str, values: Mapping[str, Any]) -> Record:
    kept = {key: cell for key, cell in values.items() if not any(part in key for part in UNSTABLE)}
    return {f"{name}: {key}": str(cell) for key, cell in kept.items()}


def _digest(value: Any) -> str:
    written = json.dumps(value, ensure_ascii=False)
    return blake2b(written.encode(), digest_size=3).hexdigest()


def _projection(values: list[float]) -> str:
    """Return a weighted sum that moves by about the rounding error of a single value.

    Large values, such as perplexities, are taken by their logarithm; infinite ones are left out.
    """
    squeezed = np.arcsinh([value if math.isfinite(value) else 0.0 for value in values])
    weights = np.cos(0.7 + 1.3 * np.arange(len(squeezed)) ** 2)
    return f"{float(weights @ squeezed / math.sqrt(max(1, len(squeezed)))):.6f}"


def load(part: str) -> Record:
    table = pq.read_table(DATA / f"{part}.parquet")
    return dict(zip(*(column.to_pylist() for column in table.columns), strict=True))


def save(part: str, record: Record) -> None:
    keys = pa.array(sorted(record))
    values = pa.array([record[key] for key in sorted(record)])
    table = pa.table({"key": keys, "value": values})
    options: Any = {"compression": "zstd", "compression_level": 19, "write_statistics": False}
    encodings = {"key": "DELTA_BYTE_ARRAY", "value": "PLAIN"}
    pq.write_table(
        table, DATA / f"{part}.parquet", use_dictionary=False, column_encoding=encodings, **options
    )


def differences(now: Record, before: Record) -> Iterator[str]:
    """Say what is not as it was recorded, a line each; what is new is no difference."""
    for key, old in before.items():
        new = now.get(key)
        if new is None:
            yield f"{key} is missing, recorded is {old}"
        elif new != old and not _close(new, old):
            yield f"{key} is {new}, recorded is {old}"


def _close(new: str, old: str) -> bool:
    try:
        one, other = float(new), float(old)
    except ValueError:
        return False
    return "." in old and math.isclose(one, other, rel_tol=TOLERANCE / 10, abs_tol=TOLERANCE)
