"""Scores of the runs, and the paired test of every two of them."""

from dataclasses import asdict

from adafuse.comparison.compare import Comparison, compare_all
from adafuse.experiments.inputs import Experiment
from adafuse.experiments.points import DifferencePoint


def difference_points(experiment: Experiment) -> list[DifferencePoint]:
    """Return every pair of runs on every benchmark under each protocol.

    Raises:
        UserError: a score or its outcomes are missing, or they do not fit.
    """
    assert len(experiment.section.runs) > 1, "checked with the configuration"
    compared = compare_all([experiment.scored(*cell) for cell in experiment.cells])
    return [_point(experiment, each) for each in compared]


def _point(experiment: Experiment, each: Comparison) -> DifferencePoint:
    return DifferencePoint(
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
