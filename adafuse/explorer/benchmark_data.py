"""The explorer's data of one benchmark: its questions, and each run's texts and rounds."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from adafuse.errors import UserError
from adafuse.explorer.compact import compact_row
from adafuse.explorer.packed import number, write_packed, write_pieces
from adafuse.workflow.traces import read_arrow, read_rows

QUESTIONS, TEXTS, ROUNDS = 500, 2000, 100
"""Examples in a file; assets/model.js is told them by the manifest."""

_COLUMNS = ("id", "text", "stop_reason", "error", "traceback", "seconds", "tokens")
_NESTED = ("prompt_tokens", "forwards", "rounds")
_TAKEN_FROM = "taken_from"


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked; `answers` are the accepted ones, none where nobody knows them."""

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

    Raises:
        UserError: a trace or outcomes cannot be read, or a trace lacks a question.
    """
    ids = [each.id for each in questions]
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".writing-") as made:
        writing = Path(made)
        write_packed(writing, f"{benchmark}/index", ids)
        asked = [[each.text, each.answers] for each in questions]
        write_pieces(writing, f"{benchmark}/questions", asked, QUESTIONS)
        for run in runs:
            _write_run(writing, f"{benchmark}/runs/{run.run}", ids, run)
        shutil.rmtree(folder / benchmark, ignore_errors=True)
        (writing / benchmark).rename(folder / benchmark)


def _write_run(folder: Path, key: str, ids: Sequence[str], files: RunFiles) -> None:
    trace = _in_order(files.trace, ids)
    index = {
        "stops": trace["stop_reason"].to_pylist(),
        "values": {name: _values(path, ids) for name, path in files.outcomes.items()},
    }
    write_packed(folder, f"{key}/index", index)
    write_pieces(folder, f"{key}/texts", trace["text"].to_pylist(), TEXTS)
    for number_of, rows in enumerate(_slices(trace.drop_columns(["text"]))):
        write_packed(folder, f"{key}/rounds-{number_of}", [compact_row(row) for row in rows])


def _in_order(path: Path, ids: Sequence[str]) -> pa.Table:
    table = read_arrow(path)
    wanted = [*_COLUMNS, *_NESTED]
    table = table.select(wanted + [_TAKEN_FROM] * (_TAKEN_FROM in table.column_names))
    places = {name: place for place, name in enumerate(table["id"].to_pylist())}
    if missing := [name for name in ids if name not in places]:
        raise UserError(
            f"trace {str(path)!r} has no row {missing[0]!r} of its benchmark; run snakemake again"
        )
    return table.take([places[name] for name in ids])


def _slices(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    for first in range(0, len(table), ROUNDS):
        yield table.slice(first, ROUNDS).to_pylist()


def _values(path: Path, ids: Sequence[str]) -> list[float | str | None]:
    """Return each example's value; None for those that are not scored."""
    found = {row["id"]: row["value"] for row in read_rows(path, ["id", "value"])}
    return [number(found.get(name), 1) for name in ids]
