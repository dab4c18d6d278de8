"""From what the package gives to what the record holds.

The names on the left of `Decoded`, of columns and of tables are the record's. When the package
renames one, change it here; the record stays.
"""

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from adafuse import Result
from tests.guard.fingerprint import Decoded, digest, projection

COLUMNS: dict[str, str] = {}
"""Columns of tables that have another name now: the new one and the record's."""

OPTIONS: dict[str, str] = {}
"""Options that have another name now: the record's and the new one."""

UNSTABLE = ("seconds", "mean_relative_to_members", "devices", "torch")
"""Columns that no two runs or machines share, by a part of their names."""

Table = list[dict[str, Any]]


def of_result(result: Result) -> Decoded:
    """What `Ensemble.generate` returns."""
    return _of_row(asdict(result))


def options_of(options: dict[str, Any]) -> dict[str, Any]:
    """What `Ensemble.stream` takes."""
    return {OPTIONS.get(name, name): value for name, value in options.items()}


def _of_row(row: dict[str, Any]) -> Decoded:
    rounds = row["rounds"]
    pools = [taken["candidates"] for taken in rounds]
    return Decoded(
        text=row["text"],
        stop=row["stop_reason"],
        counts=[list(row[name]) for name in ("tokens", "prompt_tokens")],
        candidates=[[(c["text"], c["ends"], list(c["proposers"])) for c in pool] for pool in pools],
        choices=[(taken["selected"], taken["words"]) for taken in rounds],
        nll=[[[*c["nll"], c["fused"]] for c in pool] for pool in pools],
        margins=[[list(one) for one in taken["margins"]] for taken in rounds],
    )


def traces(results: Path) -> Iterator[tuple[str, list[tuple[str, Decoded]]]]:
    """BENCHMARK/RUN with (id, what was decoded) in order of the ids, whole benchmarks only."""
    for file in sorted(Path(results, "traces").glob("*/*.parquet")):
        rows = sorted(pq.read_table(file).to_pylist(), key=lambda row: row["id"])
        yield f"{file.parent.name}/{file.stem}", [(row["id"], _of_row(row)) for row in rows]


def tables(results: Path) -> dict[str, Table]:
    """All tables by name; a score file is one of a single line."""
    found = {f"tables/{file.stem}": _csv(file) for file in Path(results, "tables").glob("*.csv")}
    for file in Path(results, "experiments").glob("*.csv"):
        found[f"experiments/{file.stem}"] = _csv(file)
    for file in Path(results, "scores").glob("*/*/*.json"):
        name = "/".join(file.with_suffix("").parts[-4:])
        found[name] = [_score(file)]
    return {name: found[name] for name in sorted(found)}


def _csv(file: Path) -> Table:
    with file.open(newline="", encoding="utf-8") as stream:
        return [_cells(line) for line in csv.DictReader(stream)]


def _cells(line: dict[str, str]) -> dict[str, str]:
    cells = {COLUMNS.get(name, name): value for name, value in line.items()}
    return {
        name: value for name, value in cells.items() if not any(part in name for part in UNSTABLE)
    }


def _score(file: Path) -> dict[str, Any]:
    score = json.loads(file.read_text(encoding="utf-8"))
    outcomes = pq.read_table(file.with_suffix(".outcomes.parquet")).to_pylist()
    return {**_flat(score), **_outcomes(outcomes)}


def _flat(score: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in score.items() if name not in ("metrics", "details")}
    cells = {COLUMNS.get(name, name): value for name, value in plain.items()}
    for metric, estimate in score["metrics"].items():
        cells |= {f"{metric}.{name}": value for name, value in estimate.items()}
    return cells | {f"details.{name}": value for name, value in score["details"].items()}


def _outcomes(rows: list[dict[str, Any]]) -> dict[str, Any]:
    rows = sorted(rows, key=lambda row: row["id"])
    values = [row["value"] for row in rows]
    assert all(map(math.isfinite, values))
    texts = [(row["id"], row["hypothesis"], row["references"]) for row in rows]
    return {"outcomes.texts": digest(texts, 4), "outcomes.values": projection(values)}
