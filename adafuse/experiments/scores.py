"""Scores of the runs, their macro averages, and the paper's values for the same rows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from adafuse.comparison.published import Published, read_published
from adafuse.errors import UserError
from adafuse.experiments.inputs import Experiment
from adafuse.experiments.points import MACRO_AVERAGE, ScorePoint, SweepPoint
from adafuse.scoring.score import Score


def score_points(experiment: Experiment) -> list[ScorePoint]:
    """Return every run on every benchmark under each protocol; then, of several, the averages.

    Raises:
        UserError: a score or the paper's numbers are missing, or runs were scored on different
            rows.
    """
    paper = _Paper.of(experiment)
    points = [
        _point(experiment, experiment.score(*cell), paper.value(*cell)) for cell in experiment.cells
    ]
    refuse_different_rows(points)
    if len(experiment.section.benchmarks) == 1:
        return points
    return points + [
        _average(run, [each for each in points if (each.protocol, each.run) == (protocol, run)])
        for protocol in experiment.config.protocols
        for run in experiment.section.runs
    ]


def refuse_different_rows(points: Sequence[ScorePoint | SweepPoint]) -> None:
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


def _point(experiment: Experiment, score: Score, paper: tuple[float | None, str]) -> ScorePoint:
    return ScorePoint(
        **asdict(experiment.names(score.run)),
        benchmark=score.benchmark,
        protocol=score.protocol,
        metric=score.primary,
        n=score.n,
        value=score.main.value,
        low=score.main.low,
        high=score.main.high,
        paper=paper[0],
        paper_row=paper[1],
    )


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
        """Return the paper's value and row; only beside scores that it can be compared with."""
        row = self.rows.get(run)
        if self.published is None or row is None or protocol != self.published.protocol:
            return None, ""
        if benchmark not in self.published.main.benchmarks:
            return None, ""
        column = self.published.main.benchmarks.index(benchmark)
        cells = next(each.values for each in self.published.main.rows if each.name == row)
        return cells[column], row
