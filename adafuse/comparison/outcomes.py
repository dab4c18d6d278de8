"""A stored score with the outcome of each row, checked against each other."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adafuse.errors import UserError

_TOKENIZERS = {"bleu_13a": "13a", "spbleu": "flores101"}
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Scored:
    """A run's score on a benchmark under a protocol, in percent, and the rows behind it.

    `values` are 1 or 0 per row for an accuracy. For BLEU `tokenize` is the name of sacrebleu's
    tokenizer and `hypotheses` and `references` are the scored texts; for an accuracy it is None.
    """

    benchmark: str
    run: str
    protocol: str
    metric: str
    value: float
    tokenize: str | None
    ids: tuple[str, ...]
    values: tuple[float, ...]
    hypotheses: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if len(set(self.ids)) != len(self.ids):
            raise UserError(f"{self.title} has two outcomes for one row; score it again")
        if self.tokenize is None:
            _check_accuracy(self)

    @property
    def title(self) -> str:
        """Which score this is, for a message."""
        return f"run {self.run!r} on {self.benchmark!r} ({self.protocol})"

    def in_order(self, ids: Sequence[str]) -> "Scored":
        """Return the same score with its rows in the order of `ids`.

        Raises:
            UserError: these are not the ids of its rows.
        """
        place = {name: index for index, name in enumerate(self.ids)}
        if strangers := place.keys() ^ set(ids):
            raise UserError(
                f"{self.title} was not scored on the same rows as the others: row"
                f" {min(strangers)!r} is on one side only; score all runs again"
            )
        order = [place[name] for name in ids]
        return replace(
            self,
            ids=tuple(ids),
            values=tuple(self.values[index] for index in order),
            hypotheses=tuple(self.hypotheses[index] for index in order),
            references=tuple(self.references[index] for index in order),
        )


@dataclass(frozen=True, slots=True)
class _Summary:
    """What a stored score says; `signature` is sacrebleu's, empty where there is none."""

    benchmark: str
    run: str
    protocol: str
    n: int
    metric: str
    value: float
    signature: str


def read_scored(score: Path) -> Scored:
    """Read NAME.json and the NAME.outcomes.parquet beside it.

    Raises:
        UserError: one of them is missing or malformed, or they do not belong together.
    """
    from adafuse.workflow.traces import read_rows

    summary = _read_summary(score)
    outcomes = score.with_suffix(".outcomes.parquet")
    rows = read_rows(outcomes, ["id", "value", "hypothesis", "references"])
    if len(rows) != summary.n:
        raise UserError(
            f"{str(outcomes)!r} has {len(rows)} rows, but {str(score)!r} says n = {summary.n};"
            " score the run again"
        )
    return Scored(
        benchmark=summary.benchmark,
        run=summary.run,
        protocol=summary.protocol,
        metric=summary.metric,
        value=summary.value,
        tokenize=_tokenizer(summary.metric, summary.signature),
        ids=tuple(row["id"] for row in rows),
        values=tuple(row["value"] for row in rows),
        hypotheses=tuple(row["hypothesis"] or "" for row in rows),
        references=tuple(tuple(row["references"] or ()) for row in rows),
    )


def _read_summary(path: Path) -> _Summary:
    try:
        stored = json.loads(path.read_bytes())
        metric = stored["primary"]
        return _Summary(
            benchmark=stored["benchmark"],
            run=stored["run"],
            protocol=stored["protocol"],
            n=stored["n"],
            metric=metric,
            value=float(stored["metrics"][metric]["value"]),
            signature=stored["details"].get("signature", ""),
        )
    except KeyError as error:
        raise UserError(f"{str(path)!r} is no score (no {error}); score the run again") from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{str(path)!r} is no score ({error}); score the run again") from None


def _tokenizer(metric: str, signature: str) -> str | None:
    """Return sacrebleu's tokenizer; None for an accuracy. A signature knows best."""
    if metric not in _TOKENIZERS:
        return None
    fields = dict(field.partition(":")[::2] for field in signature.split("|"))
    return fields.get("tok") or _TOKENIZERS[metric]


def _check_accuracy(scored: Scored) -> None:
    if odd := [value for value in scored.values if value not in (0, 1)]:
        raise UserError(
            f"{scored.title}: metric {scored.metric!r} has an outcome {odd[0]!r}, neither right (1)"
            " nor wrong (0); runs are compared by accuracies and BLEU"
        )
    check_value(scored, 100 * sum(scored.values) / len(scored.values) if scored.values else 0.0)


def check_value(scored: Scored, recomputed: float) -> None:
    """Make sure that a stored score follows from its rows.

    Raises:
        UserError: it does not.
    """
    if abs(recomputed - scored.value) > _TOLERANCE:
        raise UserError(
            f"{scored.title}: the score is {scored.value:.6f}, but its outcomes give"
            f" {recomputed:.6f}; score the run again"
        )
