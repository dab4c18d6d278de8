"""Scoring one run on one benchmark: every row of the benchmark counts, whatever became of it."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from adafuse.benchmarks.shards import read_prepared
from adafuse.errors import UserError
from adafuse.files import write_text
from adafuse.metrics.intervals import Estimate
from adafuse.metrics.registry import check_protocol, metric_named, scorer_named
from adafuse.metrics.scorer import STRICT, Details, Example, Metric, Outcome

_TOLERANCE = 1e-6


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
    ones ended in an error. `excluded` rows, few-shot examples of the prompt, are not among them.
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
    """A score and the outcome of each example."""

    score: Score
    outcomes: tuple[Outcome, ...]


def evaluate(
    rows: Sequence[Answered],
    predictions: Iterable[Mapping[str, Any]],
    scorer: str,
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
        scorer: a name of `adafuse.metrics.registry.SCORERS`.
        protocol: strict or published.
        benchmark: its name in the result.
        run: its name in the result.
        exclude: ids that `strict` leaves out; `published` keeps them.

    Raises:
        UserError: an unknown scorer or protocol, or a prediction for a row that does not exist.
    """
    chosen = scorer_named(scorer, f"benchmark {benchmark!r}")
    check_protocol(protocol)
    by_id = {row["id"]: row for row in predictions}
    _refuse_strangers(rows, by_id, benchmark=benchmark, run=run)
    scored = [row for row in rows if protocol != STRICT or row.id not in exclude]
    if not scored:
        raise UserError(f"benchmark {benchmark!r}: all rows are excluded; exclude fewer")
    failed = {name for name, row in by_id.items() if row.get("stop_reason") == "error"}
    texts = {name: row["text"] for name, row in by_id.items() if name not in failed}
    examples = [Example(row.id, texts.get(row.id, ""), row.answers) for row in scored]
    judgement = chosen.score(protocol, examples)
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
        primary=chosen.primary.name,
        details=judgement.details,
    )
    return Evaluation(score, judgement.outcomes)


def score_trace(
    rows_file: Path, trace: Path, scorer: str, protocol: str, *, benchmark: str, run: str
) -> Evaluation:
    """Score a merged trace against the prepared rows of its benchmark; see `evaluate`."""
    from adafuse.parquet import read_rows

    predictions = read_rows(trace, ["id", "text", "stop_reason"])
    rows = read_prepared(rows_file)
    shots = {row.id for row in rows if row.shot}
    return evaluate(
        rows, predictions, scorer, protocol, benchmark=benchmark, run=run, exclude=shots
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


def write_outcomes(path: Path, outcomes: Sequence[Outcome], metadata: dict[str, Any]) -> None:
    """Write outcomes as Parquet: id, value, hypothesis, references."""
    import pyarrow as pa

    from adafuse.parquet import write_table

    columns = [
        pa.field("id", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("hypothesis", pa.string()),
        pa.field("references", pa.list_(pa.string())),
    ]
    rows = [
        {"id": o.id, "value": o.value, "hypothesis": o.text, "references": list(o.answers)}
        for o in outcomes
    ]
    write_table(path, columns, rows, metadata)


def read_outcomes(path: Path) -> tuple[Outcome, ...]:
    """Read what `write_outcomes` wrote.

    Raises:
        UserError: no readable Parquet file, or one of another form.
    """
    from adafuse.parquet import read_rows

    rows = read_rows(path, ["id", "value", "hypothesis", "references"])
    return tuple(
        Outcome(row["id"], row["hypothesis"], tuple(row["references"]), row["value"])
        for row in rows
    )


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A run's score on a benchmark under a protocol, and the outcome of each row."""

    score: Score
    outcomes: tuple[Outcome, ...]

    def __post_init__(self) -> None:
        if len({outcome.id for outcome in self.outcomes}) != len(self.outcomes):
            raise UserError(f"{self.title} has two outcomes for one row; score it again")
        odd = [outcome.value for outcome in self.outcomes if outcome.value not in (0, 1)]
        if odd and self.metric.binary:
            raise UserError(
                f"{self.title}: metric {self.score.primary!r} has an outcome {odd[0]!r}, neither"
                " right (1) nor wrong (0); score the run again"
            )
        if self.outcomes and self.metric.tokenize is None:
            scale = 100 if self.metric.binary else 1
            mean = sum(outcome.value for outcome in self.outcomes) / len(self.outcomes)
            self.check_value(scale * mean)

    @property
    def title(self) -> str:
        """Which score this is, for a message."""
        score = self.score
        return f"run {score.run!r} on {score.benchmark!r} ({score.protocol})"

    @property
    def metric(self) -> Metric:
        """The metric by which runs are compared."""
        return metric_named(self.score.primary)

    @property
    def value(self) -> float:
        """The score in percent."""
        return self.score.main.value

    def in_order(self, ids: Sequence[str]) -> "ScoredRun":
        """Return the same score with its rows in the order of `ids`.

        Raises:
            UserError: these are not the ids of its rows.
        """
        by_id = {outcome.id: outcome for outcome in self.outcomes}
        if strangers := by_id.keys() ^ set(ids):
            raise UserError(
                f"{self.title} was not scored on the same rows as the others: row"
                f" {min(strangers)!r} is on one side only; score all runs again"
            )
        return replace(self, outcomes=tuple(by_id[name] for name in ids))

    def check_value(self, recomputed: float) -> None:
        """Make sure that the score follows from its rows.

        Raises:
            UserError: it does not.
        """
        if abs(recomputed - self.value) > _TOLERANCE:
            raise UserError(
                f"{self.title}: the score is {self.value:.6f}, but its outcomes give"
                f" {recomputed:.6f}; score the run again"
            )


def read_scored(path: Path) -> ScoredRun:
    """Read NAME.json and the NAME.outcomes.parquet beside it.

    Raises:
        UserError: one of them is missing or malformed, or they do not belong together.
    """
    score, file = read_score(path), path.with_suffix(".outcomes.parquet")
    outcomes = read_outcomes(file)
    if len(outcomes) != score.n:
        raise UserError(
            f"{str(file)!r} has {len(outcomes)} rows, but {str(path)!r} says n = {score.n};"
            " score the run again"
        )
    return ScoredRun(score, outcomes)
