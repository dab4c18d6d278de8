"""Shares of rounds by the number of words that they committed (section 4.3 of the paper)."""

from dataclasses import asdict

from adafuse.comparison.words_per_round import WordShare, words_per_round
from adafuse.errors import UserError
from adafuse.experiments.inputs import Experiment
from adafuse.experiments.points import WordsPoint


def words_points(experiment: Experiment) -> list[WordsPoint]:
    """Return the shares of every run on every benchmark.

    Raises:
        UserError: a trace is missing, or no round of it committed a word.
    """
    return [
        _point(experiment, run, share)
        for benchmark in experiment.section.benchmarks
        for run in experiment.section.runs
        for share in _shares(experiment, benchmark, run)
    ]


def _shares(experiment: Experiment, benchmark: str, run: str) -> list[WordShare]:
    trace = experiment.trace(benchmark, run)
    shares = words_per_round(trace)
    if not shares:
        raise UserError(
            f"no round of trace {str(trace)!r} committed a word; leave run {run!r} out of"
            f" experiments.{experiment.name}"
        )
    return shares


def _point(experiment: Experiment, run: str, share: WordShare) -> WordsPoint:
    names = asdict(experiment.names(run))
    counted = {name: value for name, value in asdict(share).items() if name != "run"}
    return WordsPoint(**names, **counted)
