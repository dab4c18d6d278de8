"""Scoring one run on one benchmark: every row of the benchmark counts, whatever became of it."""

import json
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from adafuse.benchmarks.rows import Row
from adafuse.benchmarks.shards import PreparedRow, read_prepared
from adafuse.errors import UserError
from adafuse.metrics.bertscore import with_bertscore
from adafuse.metrics.intervals import Estimate
from adafuse.metrics.registry import check_protocol, metric_named, scorer_named
from adafuse.metrics.scorer import STRICT, Details, Metric, Outcome, Prediction, Scorer, trimmed
from adafuse.plugins import is_outside
from adafuse.storage.files import write_text

CERTIFICATE, CERTIFIED = "certificate", "certified"
NEVER_RIGHT = "rows that can never be right"
MANY_CUT = 5.0
"""In percent: more answers that a limit cut make a score doubtful, as does a comparison of runs
whose shares differ by more."""


def cut_legend(scores: Iterable["Score"]) -> str:
    """Say what is cut and failed, and of which part of the texts scores are."""
    within = {score.benchmark: score.within_budget for score in scores}
    whole = [name for name, kept in within.items() if not kept]
    if len(whole) == len(within):
        budget = (
            "Texts are scored whole, also where the last span of an ensemble goes beyond"
            " `max_new_tokens` (`within_budget: false`)."
        )
    else:
        budget = "Only what fits into `max_new_tokens` is scored (`within_budget: true`)"
        budget += f", but whole texts of {', '.join(whole)}." if whole else "."
    failed = "Failed: rows that could not be decoded, and count as wrong."
    return f"Cut: answers that ended at `max_new_tokens` or `max_rounds`. {failed} {budget}"


@dataclass(frozen=True, slots=True)
class Score:
    """Metrics in percent with 95 % intervals, and the rows that count as wrong without a text.

    `n` rows were scored; `missing` of them have no prediction, `empty` ones an empty text, `failed`
    ones ended in an error. `excluded` rows, few-shot examples of the prompt, are not among them.
    `primary` names the metric of the main table; `details` holds signatures and checksums. `cut`
    answers ended at a limit, which is not known (None) of texts without stop reasons;
    `within_budget` says that only what fits into max_new_tokens was scored, else `beyond` answers
    were scored that do not fit. `announced` ones end in a colon, before what they announce.
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
    cut: int | None = None
    within_budget: bool = False
    beyond: int = 0
    announced: int = 0

    @property
    def cut_share(self) -> float | None:
        """The share of answers that a limit cut, in percent."""
        return None if self.cut is None else 100 * self.cut / self.n

    @property
    def beyond_share(self) -> float:
        """The share of answers scored that do not fit into max_new_tokens, in percent."""
        return 100 * self.beyond / self.n

    @property
    def lost_share(self) -> float:
        """The share of rows that failed or are missing, in percent; 0 where they are just wrong."""
        lost = self.failed + self.missing
        return 0.0 if metric_named(self.primary).binary else 100 * lost / self.n

    @property
    def certified(self) -> bool | None:
        """Whether the run was chosen with a certificate; None if it was not to have one."""
        return None if CERTIFIED not in self.details else bool(self.details[CERTIFIED])

    @property
    def main(self) -> Estimate:
        """The metric of the main table."""
        return self.metrics[self.primary]


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A run's score on a benchmark under a protocol, and the outcome of each row."""

    score: Score
    outcomes: tuple[Outcome, ...]

    @property
    def title(self) -> str:
        """Which score this is, for a message."""
        return f"run {self.score.run!r} on {self.score.benchmark!r} ({self.score.protocol})"

    @property
    def metric(self) -> Metric:
        """The metric by which runs are compared."""
        return metric_named(self.score.primary)

    @property
    def value(self) -> float:
        """The score in percent."""
        return self.score.main.value


def evaluate(
    rows: Sequence[Row] | Sequence[PreparedRow],
    predictions: Iterable[Mapping[str, Any]],
    scorer: str,
    protocol: str = STRICT,
    *,
    benchmark: str,
    run: str,
    exclude: Collection[str] = (),
    within_budget: bool = False,
    bertscore: str | None = None,
) -> ScoredRun:
    """Score predictions of the rows of a benchmark under one protocol.

    Predictions have "id", "text" and perhaps "stop_reason", "fits" and "thoughts", at most one per
    row; what comes before the answer of a model that thinks is not scored.
    `strict` leaves out the ids to `exclude`; `published` keeps them. `within_budget` scores of each
    text what fits. `bertscore` adds BERTScore F1 for a language, such as "de".
    """
    chosen = scorer_named(scorer, f"benchmark {benchmark!r}")
    check_protocol(protocol)
    by_id = {row["id"]: _fitting(row) if within_budget else row for row in predictions}
    if unknown := by_id.keys() - {row.id for row in rows}:
        raise UserError(
            f"run {run!r} has a prediction for row {min(unknown)!r}, which {benchmark!r} does not"
            " have; decode again"
        )
    scored = [row for row in rows if protocol != STRICT or row.id not in exclude]
    if not scored:
        raise UserError(f"benchmark {benchmark!r}: all rows are excluded; exclude fewer")
    failed = {name for name, row in by_id.items() if row.get("stop_reason") == "error"}
    answers = {name: row["text"][row.get("thoughts") or 0 :] for name, row in by_id.items()}
    texts = {name: text for name, text in answers.items() if name not in failed}
    examples = [Prediction(row.id, texts.get(row.id, ""), row.answers) for row in scored]
    judgement = chosen.score(protocol, examples)
    if is_outside(chosen):
        lost = [row for row in examples if not trimmed(row.text)]
        _check_empty(chosen, protocol, lost or examples[:ASKED])
        _check_scale(chosen, protocol, examples[:ASKED], [o.value for o in judgement.outcomes])
    if bertscore is not None:
        judgement = with_bertscore(judgement, bertscore)
    never = sum(chosen.never_right(row.answers) for row in scored) if protocol == STRICT else 0
    score = Score(
        benchmark=benchmark,
        run=run,
        protocol=protocol,
        n=len(scored),
        excluded=len(rows) - len(scored),
        missing=sum(row.id not in by_id for row in scored),
        empty=sum(row.id in texts and not trimmed(texts[row.id]) for row in scored),
        failed=sum(row.id in failed for row in scored),
        metrics=_enough(chosen, judgement.metrics, len(scored)),
        primary=chosen.primary.name,
        details=judgement.details | ({NEVER_RIGHT: never} if never else {}),
        cut=_cut([by_id[row.id] for row in scored if row.id in by_id]),
        within_budget=within_budget,
        beyond=sum(by_id.get(row.id, {}).get("fits") is not None for row in scored),
        announced=sum(_announces(row.text) for row in examples),
    )
    return ScoredRun(score, judgement.outcomes)


ASKED = 20
"""Rows of which a scorer of somebody else is asked what it gives the best text, and none."""


def _check_scale(
    scorer: Scorer, protocol: str, rows: Sequence[Prediction], values: Sequence[float]
) -> None:
    """Refuse shares, in which a margin of a point is the whole scale; 1 may be a small count."""
    rows = [row for row in rows if row.answers]
    if scorer.primary.binary or not rows or (max(values) > 1 and all(v == int(v) for v in values)):
        return
    metric, (gold, none) = scorer.primary, _extremes(scorer, protocol, rows)
    if max(abs(gold), abs(none)) <= 1 and metric.merit(gold) > metric.merit(none):
        raise UserError(
            f"scorer {scorer.name!r} gives accepted answers the {metric.name} {gold:g}, and"
            f" empty texts {none:g}; margins and verdicts are in points of a hundred: let it return"
            " 100 times that"
        )


def _extremes(scorer: Scorer, protocol: str, rows: Sequence[Prediction]) -> tuple[float, float]:
    """Return the score of rows with an accepted answer as their texts, and of rows without any."""
    right = [replace(row, text=row.answers[0]) for row in rows]
    found = []
    for kind, asked in (("accepted answers", right), ("", [replace(r, text="") for r in rows])):
        try:
            with warnings.catch_warnings(action="ignore"):  # of texts that nobody gave it
                found.append(scorer.score(protocol, asked).metrics[scorer.primary.name].value)
        except UserError as error:
            raise UserError(f"{error} ({kind or 'empty texts, as failed rows have'})") from error
    return found[0], found[1]


def _check_empty(scorer: Scorer, protocol: str, rows: Sequence[Prediction]) -> None:
    """Refuse a scorer to which no text is as good as a right one, where rows have no text."""
    rows = [row for row in rows if row.answers and all(map(scorer.normalise, row.answers))]
    if not rows:
        return
    metric = scorer.primary
    gold, none = _extremes(scorer, protocol, rows)
    better = metric.merit(none) - metric.merit(gold)
    worst = min(map(metric.merit, (0, 100)))  # both are so where it reads no bare answer
    if better > 1e-9 or (better > -1e-9 and metric.merit(none) > worst):
        raise UserError(
            f"scorer {scorer.name!r} gives empty texts the {metric.name} {none:g}, and the accepted"
            f" answers of the same {len(rows)} rows {gold:g}{metric.note}, so that rows without a"
            " text count as right; let it give an empty text its worst value, or correct"
            " higher_is_better"
        )


def _fitting(row: Mapping[str, Any]) -> Mapping[str, Any]:
    if row.get("fits") is None or row.get("stop_reason") == "error":
        return row
    text = row["text"][: row["fits"]]
    return {**row, "text": text, "fits": None, "stop_reason": "length"}


def _cut(predictions: Sequence[Mapping[str, Any]]) -> int | None:
    reasons = [row.get("stop_reason") for row in predictions]
    return reasons.count("length") if reasons and all(reasons) else None


def _announces(text: str) -> bool:
    return trimmed(text).rstrip("*_").endswith((":", "\uff1a"))  # "**Answer:**", too


def _enough(scorer: Scorer, metrics: Mapping[str, Estimate], n: int) -> dict[str, Estimate]:
    """Return metrics without the intervals that so few rows cannot have, whoever made them."""
    exact = {metric.name for metric in scorer.metrics if metric.binary}
    return {name: e if name in exact else e.of_rows(n) for name, e in metrics.items()}


def score_trace(
    rows_file: Path,
    trace: Path,
    scorer: str,
    protocol: str,
    *,
    benchmark: str,
    run: str,
    within_budget: bool = False,
    bertscore: str | None = None,
) -> ScoredRun:
    """Score a merged trace against the prepared rows of its benchmark; see `evaluate`.

    The certificate of a trace that has one is among the details.
    """
    from adafuse.storage.parquet import iterate_rows, read_metadata

    predictions = iterate_rows(trace, ["id", "text", "stop_reason", "fits", "thoughts"])
    rows = read_prepared(rows_file)
    shots = {row.id for row in rows if row.shot}
    found = evaluate(
        rows,
        predictions,
        scorer,
        protocol,
        benchmark=benchmark,
        run=run,
        exclude=shots,
        within_budget=within_budget,
        bertscore=bertscore,
    )
    if (said := read_metadata(trace).get(CERTIFICATE)) is None:
        return found
    details = {CERTIFICATE: said["sentence"], CERTIFIED: int(said["certified"])}
    return replace(found, score=replace(found.score, details=found.score.details | details))


def write_score(path: Path, score: Score) -> None:
    """Write a score as JSON."""
    write_text(path, json.dumps(asdict(score), indent=2) + "\n")


def read_score(path: Path) -> Score:
    """Read a score that `write_score` wrote."""
    try:
        return TypeAdapter(Score).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{str(path)!r} is not a score ({reason}); delete it and run again"
        ) from None


def write_outcomes(path: Path, outcomes: Sequence[Outcome], metadata: dict[str, Any]) -> None:
    """Write outcomes as Parquet: id, value, hypothesis, references."""
    import pyarrow as pa

    from adafuse.storage.parquet import write_rows

    text = pa.string()
    kinds = {"id": text, "value": pa.float64(), "hypothesis": text, "references": pa.list_(text)}
    rows = [
        dict(zip(kinds, (o.id, float(o.value), o.text, o.answers), strict=True)) for o in outcomes
    ]
    write_rows(path, [pa.field(*kind) for kind in kinds.items()], rows, metadata)


def read_outcomes(path: Path) -> tuple[Outcome, ...]:
    """Read what `write_outcomes` wrote."""
    from adafuse.storage.parquet import read_rows

    rows = read_rows(path, ["id", "value", "hypothesis", "references"])
    return tuple(
        Outcome(row["id"], row["hypothesis"], tuple(row["references"]), row["value"])
        for row in rows
    )


def read_scored(path: Path) -> ScoredRun:
    """Read NAME.json and the NAME.outcomes.parquet beside it."""
    return ScoredRun(read_score(path), read_outcomes(path.with_suffix(".outcomes.parquet")))
