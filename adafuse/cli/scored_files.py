"""What `adafuse score` and `adafuse audit` read: predictions and references of a benchmark."""

from dataclasses import dataclass
from pathlib import Path

from adafuse.benchmarks.rows import Row, read_rows
from adafuse.errors import UserError, meant
from adafuse.scoring.predictions import read_predictions
from adafuse.scoring.tasks import BENCHMARKS, TASKS, task_named


@dataclass(frozen=True, slots=True)
class Scored:
    """Rows and predictions that belong together, and the task that scores them."""

    metric: str
    rows: tuple[Row, ...]
    predictions: list[dict[str, str]]


def read_scored(benchmark: str, predictions: Path, references: Path, metric: str | None) -> Scored:
    """Read both files and match them.

    Raises:
        UserError: an unknown benchmark, or files that do not belong to it or to each other.
    """
    if metric is not None:
        task_named(metric, "--metric")
    elif benchmark not in BENCHMARKS and benchmark not in TASKS:
        raise UserError(
            f"unknown benchmark {benchmark!r}; known are: {', '.join(BENCHMARKS)}; to score"
            f" any other, name its metric in --benchmark or --metric: {', '.join(TASKS)}"
            f"{meant(benchmark, [*BENCHMARKS, *TASKS])}"
        )
    task = metric or BENCHMARKS.get(benchmark, benchmark)
    rows = read_rows(references).rows
    named = benchmark if metric is not None or benchmark in BENCHMARKS else None
    return Scored(task, rows, read_predictions(predictions, rows, benchmark=named))
