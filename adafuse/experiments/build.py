"""From the name of an experiment to its CSV file and its figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adafuse.experiments.draw_paired import draw_paired
from adafuse.experiments.draw_runtime import draw_runtime
from adafuse.experiments.draw_scores import draw_scores
from adafuse.experiments.draw_sweep import draw_sweep
from adafuse.experiments.draw_words import draw_words
from adafuse.experiments.inputs import Experiment
from adafuse.experiments.paired import difference_points
from adafuse.experiments.points import RunName, to_csv
from adafuse.experiments.runtime import runtime_points
from adafuse.experiments.scores import score_points
from adafuse.experiments.style import stored, styled
from adafuse.experiments.sweep import sweep_points
from adafuse.experiments.words import words_points

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Built:
    """An experiment as the content of its three files."""

    csv: str
    svg: bytes
    png: bytes


def build(experiment: Experiment) -> Built:
    """Measure and draw an experiment.

    Raises:
        UserError: a result file is missing, or the runs do not fit the kind of experiment.
    """
    with styled():
        points, figure = _measured(experiment)
        return Built(to_csv(points), stored(figure, "svg"), stored(figure, "png"))


def _measured(experiment: Experiment) -> "tuple[Sequence[RunName], Figure]":
    title = experiment.section.title
    match experiment.section.kind:
        case "scores":
            scores = score_points(experiment)
            return scores, draw_scores(title, scores)
        case "sweep":
            sweep = sweep_points(experiment)
            return sweep, draw_sweep(title, sweep)
        case "runtime":
            times = runtime_points(experiment)
            return times, draw_runtime(title, times)
        case "words_per_round":
            words = words_points(experiment)
            return words, draw_words(title, words)
        case "paired":
            differences = difference_points(experiment)
            scores = score_points(experiment)
            return [*scores, *differences], draw_paired(title, differences)
