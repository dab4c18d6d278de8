"""The data of the trace explorer: scripts that hand compressed JSON to pages.

A page that is opened from a folder may not read files, but it may load scripts.
"""

import base64
import gzip
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from adafuse.errors import UserError
from adafuse.storage.files import without_folders, write_text
from adafuse.storage.parquet import read_arrow, read_rows
from adafuse.storage.traces import check_trace, places

QUESTIONS, TEXTS, ROUNDS = 500, 2000, 100
"""Examples in a file; assets/model.js reads the numbers in the manifest."""

_FILE, _CALL = "manifest.js", "adafuse.manifest = "
_LEVEL = 6


@dataclass(frozen=True, slots=True)
class Question:
    """A question; `answers` are the accepted ones, if they are known."""

    id: str
    text: str
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunFiles:
    """A run's merged trace, and its outcomes by protocol."""

    run: str
    trace: Path
    outcomes: Mapping[str, Path]


def write_benchmark(
    folder: Path, benchmark: str, questions: Sequence[Question], runs: Sequence[RunFiles]
) -> None:
    """Write all data of a benchmark to FOLDER/BENCHMARK; examples are in the questions' order.

    What was there before is replaced when all is written.
    """
    ids = [question.id for question in questions]
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".writing-") as made:
        writing = Path(made)
        write_packed(writing, f"{benchmark}/index", ids)
        texts = [[question.text, question.answers] for question in questions]
        write_pieces(writing, f"{benchmark}/questions", texts, QUESTIONS)
        for run in runs:
            _write_run(writing, f"{benchmark}/runs/{run.run}", ids, run)
        shutil.rmtree(folder / benchmark, ignore_errors=True)
        (writing / benchmark).rename(folder / benchmark)


def _write_run(folder: Path, key: str, ids: Sequence[str], files: RunFiles) -> None:
    trace = _in_order(files.trace, ids)
    values = {}
    for protocol, path in files.outcomes.items():
        rows = {row["id"]: row for row in read_rows(path, ["id", "value", "hypothesis"])}
        scored = [rows.get(name, {}) for name in ids]
        values[protocol] = [number(row.get("value")) for row in scored]
        texts = [row.get("hypothesis") for row in scored]
        write_pieces(folder, f"{key}/scored-{protocol}", texts, TEXTS)
    index = {"stops": trace["stop_reason"].to_pylist(), "values": values}
    thoughts = trace["thoughts"].to_pylist() if "thoughts" in trace.column_names else []
    if any(thoughts):
        index["thoughts"] = [length or 0 for length in thoughts]
    write_packed(folder, f"{key}/index", index)
    write_pieces(folder, f"{key}/texts", trace["text"].to_pylist(), TEXTS)
    for first in range(0, len(trace), ROUNDS):
        rows = trace.slice(first, ROUNDS).drop_columns(["text"]).to_pylist()
        write_packed(folder, f"{key}/rounds-{first // ROUNDS}", [_compact(row) for row in rows])


def _in_order(path: Path, ids: Sequence[str]) -> pa.Table:
    check_trace(path)
    table = read_arrow(path)
    row_of = places(path, table)
    if missing := [name for name in ids if name not in row_of]:
        raise UserError(
            f"trace {str(path)!r} has no row {missing[0]!r} of its benchmark; run snakemake again"
        )
    return table.take([row_of[name] for name in ids])


def _compact(row: dict[str, Any]) -> list[Any]:
    return [
        [_round(each) for each in row["rounds"]],
        row["tokens"],
        row["prompt_tokens"],
        row["forwards"],
        number(row["seconds"]),
        *(text and without_folders(text) for text in map(row.get, ("error", "traceback"))),
        row.get("taken_from"),
    ]


def _round(row: dict[str, Any]) -> list[Any]:
    candidates = [_candidate(candidate) for candidate in row["candidates"]]
    margins = [[number(value, 6) for value in values] for values in row["margins"]]
    weights = [number(value) for value in row.get("weights") or ()]  # older traces have none
    return [candidates, row["selected"], row["words"], margins, *([weights] if weights else [])]


def _candidate(row: dict[str, Any]) -> list[Any]:
    nll = [number(value) for value in row["nll"]]
    return [row["text"], int(row["ends"]), row["proposers"], nll, number(row["fused"])]


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run's method and models by name; `tau` is None where the method has no threshold."""

    method: str
    models: tuple[str, ...]
    tau: float | None = None


@dataclass(frozen=True, slots=True)
class BenchmarkEntry:
    """A benchmark of `n` examples, the runs on it, and the metric of an example's value.

    `merit` is what one unit more of it is worth: 1, or -1 where less is better.
    """

    name: str
    n: int
    runs: tuple[str, ...]
    label: str = ""
    binary: bool = False
    merit: float = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """All benchmarks, and all runs that rows may come from; models give the order of colours."""

    benchmarks: Sequence[BenchmarkEntry]
    runs: Mapping[str, RunEntry]
    models: Sequence[str]
    protocols: Sequence[str]
    note: str | None = None


def has_manifest(folder: Path) -> bool:
    """Say whether a folder holds the data of a report."""
    return (folder / _FILE).is_file()


def read_benchmarks(folder: Path) -> list[str]:
    """Return the benchmarks of the report whose data lie in a folder; none without a report."""
    if not has_manifest(folder):
        return []
    with suppress(ValueError, KeyError, TypeError, RecursionError):  # a damaged one
        text = (folder / _FILE).read_text(encoding="utf-8")
        values = json.loads(text.removeprefix(_CALL).removesuffix(";\n"))
        return [benchmark["name"] for benchmark in values["benchmarks"]]
    return []


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest to where explorer.html looks for it."""
    sizes = {"questions": QUESTIONS, "texts": TEXTS, "rounds": ROUNDS}
    value = json.dumps({**asdict(manifest), "sizes": sizes})
    write_text(folder / _FILE, f"{_CALL}{value};\n")


def write_packed(folder: Path, key: str, value: object) -> None:
    """Write a value to KEY.js in a folder, for `adafuse.load(KEY)` of assets/chunks.js.

    It is JSON-ready, without infinities (see `number`).
    """
    plain = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    packed = base64.b64encode(gzip.compress(plain, _LEVEL, mtime=0)).decode()
    path = folder / f"{key}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'adafuse.receive({json.dumps(key)},"{packed}");\n', encoding="ascii")


def write_pieces(folder: Path, key: str, values: Sequence[Any], size: int) -> None:
    """Write values in pieces KEY-0, KEY-1, ... of `size`."""
    for first in range(0, len(values), size):
        write_packed(folder, f"{key}-{first // size}", values[first : first + size])


def number(value: float | None, digits: int = 4) -> float | str | None:
    """Return a number with few digits; what JSON cannot hold as text (`inf`, `nan`)."""
    if value is None:
        return None
    return round(value, digits) if math.isfinite(value) else str(value)
