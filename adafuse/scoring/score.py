"""Scoring one run on one benchmark: every row of the benchmark counts, whatever became of it."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from adafuse.benchmarks.shards import read_prepared
from adafuse.errors import UserError
from adafuse.files import write_text
from adafuse.scoring.intervals import Estimate
from adafuse.scoring.judged import Details
from adafuse.scoring.outcomes import Example, Outcome
from adafuse.scoring.tasks import STRICT, task_named


class Answered(Protocol):
    """A row of a benchmark, as far as scoring is concerned."""

    @property
    def id(self) -> str: ...
    @property
    def answers(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Score:
    """Metrics in percent with 95 % intervals, and the rows that count as wrong without a text.

    `n` rows were scored; `missing` of them have no prediction, `empty` ones an empty text, `failed`
    ones ended in an error. `excluded` rows, worked examples of the prompt, are not among them.
    `primary` names the metric of the main table; `details` holds signatures and checksums.
    """

    benchmark: str
    run: str
    protocol: str
    n: int
    excluded: int
    missing: int
    empty: int
    failed: int
    metrics: dict[str, Estimate]
    primary: str
    details: Details

    @property
    def main(self) -> Estimate:
        """The metric of the main table."""
        return self.metrics[self.primary]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A score and what became of each example behind it."""

    score: Score
    outcomes: tuple[Outcome, ...]


def evaluate(
    rows: Sequence[Answered],
    predictions: Iterable[Mapping[str, Any]],
    metric: str,
    protocol: str = STRICT,
    *,
    benchmark: str,
    run: str,
    exclude: Collection[str] = (),
) -> Evaluation:
    """Score predictions under one protocol.

    Args:
        rows: all rows of the benchmark.
        predictions: {"id", "text"} and, where known, "stop_reason", at most one per row.
        metric: a name of `adafuse.scoring.tasks.TASKS`.
        protocol: strict or published.
        benchmark: its name in the result.
        run: its name in the result.
        exclude: ids that `strict` leaves out; `published` keeps them.

    Raises:
        UserError: an unknown metric or protocol, or a prediction for a row that does not exist.
    """
    task = task_named(metric, f"benchmark {benchmark!r}")
    judge = task.protocol(protocol)
    by_id = {row["id"]: row for row in predictions}
    _refuse_strangers(rows, by_id, benchmark=benchmark, run=run)
    scored = [row for row in rows if protocol != STRICT or row.id not in exclude]
    if not scored:
        raise UserError(f"benchmark {benchmark!r}: all rows are excluded; exclude fewer")
    failed = {name for name, row in by_id.items() if row.get("stop_reason") == "error"}
    texts = {name: row["text"] for name, row in by_id.items() if name not in failed}
    judgement = judge([Example(row.id, texts.get(row.id, ""), row.answers) for row in scored])
    score = Score(
        benchmark=benchmark,
        run=run,
        protocol=protocol,
        n=len(scored),
        excluded=len(rows) - len(scored),
        missing=sum(row.id not in by_id for row in scored),
        empty=sum(row.id in texts and not texts[row.id].strip() for row in scored),
        failed=sum(row.id in failed for row in scored),
        metrics=judgement.metrics,
        primary=task.primary,
        details=judgement.details,
    )
    return Evaluation(score, judgement.outcomes)


def score_trace(
    rows_file: Path, trace: Path, metric: str, protocol: str, *, benchmark: str, run: str
) -> Evaluation:
    """Score a merged trace against the prepared rows of its benchmark; see `evaluate`."""
    from adafuse.workflow.traces import read_rows

    predictions = read_rows(trace, ["id", "text", "stop_reason"])
    rows = read_prepared(rows_file)
    shots = {row.id for row in rows if row.shot}
    return evaluate(
        rows, predictions, metric, protocol, benchmark=benchmark, run=run, exclude=shots
    )


def _refuse_strangers(
    rows: Sequence[Answered], by_id: Mapping[str, Any], *, benchmark: str, run: str
) -> None:
    strangers = by_id.keys() - {row.id for row in rows}
    if strangers:
        raise UserError(
            f"run {run!r} has a prediction for row {min(strangers)!r}, which {benchmark!r} does not"
            " have; decode again"
        )


def write_score(path: Path, score: Score) -> None:
    """Write a score as JSON."""
    write_text(path, json.dumps(asdict(score), indent=2) + "\n")


def read_score(path: Path) -> Score:
    """Read a score that `write_score` wrote."""
    try:
        values = json.loads(path.read_bytes())
        metrics = {name: Estimate(**each) for name, each in values.pop("metrics").items()}
        return Score(**values, metrics=metrics)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{str(path)!r} is no score ({error}); delete it and run again") from None
