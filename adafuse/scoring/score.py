"""Scoring one run on one benchmark: every row of the benchmark counts, whatever became of it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adafuse.benchmarks.prepare import PreparedRow, read_prepared
from adafuse.errors import UserError
from adafuse.scoring.metrics import Example, metric_named
from adafuse.traces.atomic import write_text
from adafuse.traces.table import read_rows


@dataclass(frozen=True, slots=True)
class Score:
    """A score in percent, its 95 % interval, and the rows that count as wrong without a text.

    `missing` rows have no prediction, `empty` ones an empty text, `failed` ones ended in an error.
    """

    benchmark: str
    run: str
    protocol: str
    metric: str
    n: int
    value: float
    low: float
    high: float
    missing: int
    empty: int
    failed: int


def score_trace(rows_file: Path, trace: Path, metric: str, *, benchmark: str, run: str) -> Score:
    """Score a merged trace against the rows of its benchmark.

    Raises:
        UserError: an unknown metric, or a trace with rows that the benchmark does not have.
    """
    predictions = read_rows(trace, ["id", "text", "stop_reason"])
    return score_rows(read_prepared(rows_file), predictions, metric, benchmark=benchmark, run=run)


def score_rows(
    rows: Sequence[PreparedRow],
    predictions: Iterable[Mapping[str, Any]],
    metric: str,
    *,
    benchmark: str,
    run: str,
) -> Score:
    """Score predictions; see `score_trace`."""
    by_id = {row["id"]: row for row in predictions}
    strangers = by_id.keys() - {row.id for row in rows}
    if strangers:
        raise UserError(
            f"run {run!r} has a prediction for row {min(strangers)!r}, which {benchmark!r} does not"
            " have; decode again"
        )
    failed = {name for name, row in by_id.items() if row["stop_reason"] == "error"}
    texts = {name: row["text"] for name, row in by_id.items() if name not in failed}
    examples = [Example(row.id, texts.get(row.id, ""), row.answers) for row in rows]
    estimate = metric_named(metric, f"benchmark {benchmark!r}")(examples)
    return Score(
        benchmark=benchmark,
        run=run,
        protocol="strict",
        metric=metric,
        n=len(rows),
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        missing=sum(row.id not in by_id for row in rows),
        empty=sum(not text.strip() for text in texts.values()),
        failed=len(failed),
    )


def write_score(path: Path, score: Score) -> None:
    """Write a score as JSON."""
    write_text(path, json.dumps(asdict(score), indent=2) + "\n")


def read_score(path: Path) -> Score:
    """Read a score that `write_score` wrote."""
    try:
        return Score(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{str(path)!r} is no score ({error}); delete it and run again") from None
