"""Failures side by side: rows that some run gets wrong, with what every run answered."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from adafuse.benchmarks.shards import read_prepared
from adafuse.errors import UserError, unknown
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.score import read_outcomes
from adafuse.metrics.scorer import Metric
from adafuse.report.stored import StoredResults
from adafuse.report.tables import Table
from adafuse.storage.parquet import iterate_rows
from adafuse.workflow.stamps import intact


@dataclass(frozen=True, slots=True)
class Given:
    """What a run answered, without thoughts, what of it was scored, and the value of that.

    `right` is None where the metric is not binary.
    """

    text: str
    scored: str
    value: float
    right: bool | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A row, by its number in the benchmark from 1, with the answers of runs by their names."""

    row: int
    id: str
    question: str
    gold: tuple[str, ...]
    answers: dict[str, Given]

    def spread(self, metric: Metric) -> float:
        """Return how much better the best answer is than the worst one."""
        merits = [metric.merit(given.value) for given in self.answers.values()]
        return max(merits) - min(merits)


def is_right(metric: Metric, value: float) -> bool:
    """Whether a row is right; of a metric that is not binary, whether it has the full score."""
    full = max((0, 1 if metric.binary else 100), key=metric.merit)
    return metric.merit(value) >= metric.merit(full)


def scored_runs(results: StoredResults, benchmark: str, protocol: str) -> list[str]:
    """Return the runs with outcomes on a benchmark, in the order of the configuration."""
    outcomes = results.layout.outcomes
    return [run for run in results.runs[benchmark] if outcomes(protocol, benchmark, run).is_file()]


def failures(
    results: StoredResults,
    benchmark: str,
    runs: Sequence[str],
    protocol: str,
    *,
    right: Collection[str] = (),
    wrong: Collection[str] = (),
) -> list[Failure]:
    """Return the rows that at least one of some runs gets wrong, in the order of the benchmark.

    Only those are kept that all runs of `right` get right and all of `wrong` get wrong. A metric
    that is not binary has no right and wrong rows: those are left out that all runs score fully,
    and the rows on which runs differ most come first.

    Raises:
        UserError: `right` or `wrong` are given for such a metric, or name none of the runs.
    """
    metric = SCORERS[results.config.benchmarks[benchmark].scorer].primary
    for name in (*right, *wrong):
        if name not in runs:
            raise UserError(unknown("run", name, list(runs)))
        if not metric.binary:
            raise UserError(
                f"{benchmark!r} is scored by {metric.label}, so no row is right or wrong; leave out"
                f" the runs that must be ({name!r})"
            )
    given = {run: _answers(results, benchmark, run, protocol, metric) for run in runs}
    found = []
    for number, row in enumerate(read_prepared(intact(results.layout.rows(benchmark))), 1):
        answers = {run: given[run][row.id] for run in runs if row.id in given[run]}
        kept = all(name in answers and answers[name].right for name in right)
        kept &= all(name in answers and not answers[name].right for name in wrong)
        if kept and not all(is_right(metric, each.value) for each in answers.values()):
            question = row.question or row.prompt
            found.append(Failure(number, row.id, question, row.answers, answers))
    if not metric.binary:
        found.sort(key=lambda failure: failure.spread(metric), reverse=True)
    return found


def _answers(
    results: StoredResults, benchmark: str, run: str, protocol: str, metric: Metric
) -> dict[str, Given]:
    columns = ("id", "text", "thoughts", "error")
    texts = {row["id"]: row for row in iterate_rows(results.trace(benchmark, run), columns)}
    outcomes = read_outcomes(intact(results.layout.outcomes(protocol, benchmark, run)))
    return {
        each.id: Given(_text(texts[each.id]), each.text, each.value, right)
        for each in outcomes
        if each.id in texts
        for right in [is_right(metric, each.value) if metric.binary else None]
    }


def _text(row: dict[str, object]) -> str:
    text, thoughts = str(row["text"]), row.get("thoughts")
    answer = text[thoughts:] if isinstance(thoughts, int) else text
    return f"{answer} [error: {row['error']}]" if row.get("error") else answer


def failures_table(
    found: Iterable[tuple[str, Failure]], runs: Sequence[str], protocol: str
) -> Table:
    """Return a row per benchmark and failure; what a run did not answer, or has not, is empty."""
    parts = ("", "_scored", "_value", "_right")
    head = ["benchmark", "protocol", "row", "id", "question", "gold"]
    rows = []
    for benchmark, failure in found:
        gold = " | ".join(failure.gold)
        cells = [benchmark, protocol, failure.row, failure.id, failure.question, gold]
        for run in runs:
            given = failure.answers.get(run)
            values = (given.text, given.scored, given.value, given.right) if given else [None] * 4
            cells += values
        rows.append(cells)
    return Table([*head, *(f"{run}{part}" for run in runs for part in parts)], rows)
