"""Scores over the values of an option, joined to series of runs that differ in nothing else."""

from dataclasses import asdict

from adafuse.experiments.inputs import Experiment
from adafuse.experiments.places import Place, places
from adafuse.experiments.points import SweepPoint
from adafuse.experiments.scores import refuse_different_rows
from adafuse.scoring.score import Score


def sweep_points(experiment: Experiment) -> list[SweepPoint]:
    """Return every run on every benchmark under each protocol, with its series and place in it.

    Raises:
        UserError: a score is missing or covers other rows.
    """
    runs = {name: experiment.run(name) for name in experiment.section.runs}
    found = places(f"experiments.{experiment.name}", experiment.section.options, runs)
    points = [
        _point(experiment, experiment.score(*cell), found[cell[2]]) for cell in experiment.cells
    ]
    refuse_different_rows(points)
    return points


def _point(experiment: Experiment, score: Score, place: Place) -> SweepPoint:
    return SweepPoint(
        **asdict(experiment.names(score.run)),
        benchmark=score.benchmark,
        protocol=score.protocol,
        series=place.series,
        option=place.option,
        x=place.x,
        metric=score.primary,
        n=score.n,
        value=score.main.value,
        low=score.main.low,
        high=score.main.high,
    )
