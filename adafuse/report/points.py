"""What the experiments measure: scores beside the paper's, sweeps, paired differences, words."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from adafuse.config.sweep_axis import sweep_positions
from adafuse.errors import UserError
from adafuse.metrics.compare import compare_all
from adafuse.metrics.published import Published, read_published
from adafuse.metrics.score import Score
from adafuse.report.experiments import (
    MACRO_AVERAGE,
    DifferencePoint,
    Experiment,
    ScorePoint,
    SweepPoint,
    WordsPoint,
)
from adafuse.report.measures import words_per_round


def score_points(experiment: Experiment) -> list[ScorePoint]:
    """Return every run on every benchmark under each protocol; then, of several, the averages.

    Raises:
        UserError: a score or the paper's numbers are missing, or runs were scored on different
            rows.
    """
    paper = _Paper.of(experiment)
    points = []
    for cell in experiment.cells:
        value, row = paper.value(*cell)
        scored = _scored(experiment, experiment.score(*cell))
        points.append(ScorePoint(**scored, paper=value, paper_row=row))
    _refuse_different_rows(points)
    if len(experiment.section.benchmarks) == 1:
        return points
    return points + [
        _average(run, [each for each in points if (each.protocol, each.run) == (protocol, run)])
        for protocol in experiment.config.protocols
        for run in experiment.section.runs
    ]


def _refuse_different_rows(points: Sequence[ScorePoint | SweepPoint]) -> None:
    """Make sure that what shares a panel is comparable.

    Raises:
        UserError: scores of one benchmark and protocol cover different numbers of rows.
    """
    counts: dict[tuple[str, str], set[int | None]] = {}
    for point in points:
        counts.setdefault((point.benchmark, point.protocol), set()).add(point.n)
    for (benchmark, protocol), found in counts.items():
        if len(found) > 1:
            raise UserError(
                f"the {protocol} scores of {benchmark!r} cover {sorted(n or 0 for n in found)} rows"
                " and cannot stand in one panel; run the workflow again"
            )


def _scored(experiment: Experiment, score: Score) -> dict[str, Any]:
    """Return the fields that every point has that is made of a score."""
    return {
        **asdict(experiment.names(score.run)),
        "benchmark": score.benchmark,
        "protocol": score.protocol,
        "metric": score.primary,
        "n": score.n,
        "value": score.main.value,
        "low": score.main.low,
        "high": score.main.high,
    }


def _average(run: str, points: Sequence[ScorePoint]) -> ScorePoint:
    assert points and all(point.run == run for point in points)
    first, papers = points[0], [point.paper for point in points if point.paper is not None]
    whole = len(papers) == len(points)
    return ScorePoint(
        run=run,
        method=first.method,
        models=first.models,
        selection=first.selection,
        benchmark=MACRO_AVERAGE,
        protocol=first.protocol,
        metric="mean of the scores",
        n=None,
        value=fmean(point.value for point in points),
        low=None,
        high=None,
        paper=fmean(papers) if whole else None,
        paper_row=first.paper_row if whole else "",
    )


@dataclass(frozen=True, slots=True)
class _Paper:
    """The paper's Table 1, as far as runs of the experiment stand for its rows."""

    published: Published | None
    rows: dict[str, str]

    @classmethod
    def of(cls, experiment: Experiment) -> "_Paper":
        rows, file = experiment.section.published, experiment.config.published_numbers
        published = read_published(Path(file)) if rows and file is not None else None
        return cls(published, rows)

    def value(self, protocol: str, benchmark: str, run: str) -> tuple[float | None, str]:
        """Return the paper's value and row; only next to scores that it can be compared with."""
        row = self.rows.get(run)
        if self.published is None or row is None or protocol != self.published.protocol:
            return None, ""
        if benchmark not in self.published.main.benchmarks:
            return None, ""
        column = self.published.main.benchmarks.index(benchmark)
        cells = next(each.values for each in self.published.main.rows if each.name == row)
        return cells[column], row


def sweep_points(experiment: Experiment) -> list[SweepPoint]:
    """Return every run on every benchmark under each protocol, with its series and position in it.

    Raises:
        UserError: a score is missing or covers other rows.
    """
    runs = {name: experiment.run(name) for name in experiment.section.runs}
    found = sweep_positions(f"experiments.{experiment.name}", experiment.section.options, runs)
    points = [
        SweepPoint(**_scored(experiment, experiment.score(*cell)), **asdict(found[cell[2]]))
        for cell in experiment.cells
    ]
    _refuse_different_rows(points)
    return points


def difference_points(experiment: Experiment) -> list[DifferencePoint]:
    """Return every pair of runs on every benchmark under each protocol.

    Raises:
        UserError: a score or its outcomes are missing, or they do not fit.
    """
    assert len(experiment.section.runs) > 1, "checked with the configuration"
    compared = compare_all([experiment.scored(*cell) for cell in experiment.cells])
    return [
        DifferencePoint(
            **asdict(experiment.names(each.run)),
            benchmark=each.benchmark,
            protocol=each.protocol,
            metric=each.metric,
            n=each.n,
            against=each.against,
            against_label=experiment.names(each.against).label,
            difference=each.difference,
            difference_low=each.low,
            difference_high=each.high,
            test=each.test,
            p=each.p,
            p_holm=each.p_holm,
            significant=each.significant,
        )
        for each in compared
    ]


def words_points(experiment: Experiment) -> list[WordsPoint]:
    """Return the shares of rounds by number of words of every run on every benchmark.

    Raises:
        UserError: a trace is missing, or no round of it committed a word.
    """
    points = []
    for benchmark in experiment.section.benchmarks:
        for run in experiment.section.runs:
            trace = experiment.trace(benchmark, run)
            shares = words_per_round(trace)
            if not shares:
                raise UserError(
                    f"no round of trace {str(trace)!r} committed a word; leave run {run!r} out of"
                    f" experiments.{experiment.name}"
                )
            names = asdict(experiment.names(run))
            points += [WordsPoint(**(asdict(share) | names)) for share in shares]
    return points
