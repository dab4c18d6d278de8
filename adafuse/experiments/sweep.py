"""Scores over the values of an option, joined to series of runs that differ in nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from adafuse.errors import UserError
from adafuse.experiments.inputs import Experiment
from adafuse.experiments.points import SweepPoint
from adafuse.experiments.scores import refuse_different_rows
from adafuse.methods import resolve
from adafuse.scoring.score import Score

_BESIDE_OPTIONS = ("method", "models", "weights", "max_rounds")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a run stands: `x` along `option`, and everything else that it is made of."""

    run: str
    option: str
    x: float
    rest: Mapping[str, Any]


def sweep_points(experiment: Experiment) -> list[SweepPoint]:
    """Return every run on every benchmark under each protocol, with its series and place in it.

    Raises:
        UserError: a score is missing or covers other rows; a run has several of the options,
            or no number there; two runs stand at the same place.
    """
    places = {run: _place(experiment, run) for run in experiment.section.runs}
    series = series_labels({run: place.rest for run, place in places.items()})
    _refuse_twins(experiment, places, series)
    points = [
        _point(experiment, experiment.score(*cell), places[cell[2]], series[cell[2]])
        for cell in experiment.cells
    ]
    refuse_different_rows(points)
    return points


def series_labels(rests: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return a label per run that says in what its series differs from the others.

    Args:
        rests: per run what it is made of, the option of the sweep left out. Runs of equal ones are
            one series. A part that only some have (options of other methods) tells none apart.
    """
    kinds = list({repr(rest): rest for rest in rests.values()}.values())
    parts = dict.fromkeys(part for rest in kinds for part in rest)
    differing = [part for part in parts if _differs(part, kinds)]
    return {run: _label(rest, differing) for run, rest in rests.items()}


def _differs(part: str, kinds: Sequence[Mapping[str, Any]]) -> bool:
    return len({repr(rest[part]) for rest in kinds if part in rest}) > 1


def _label(rest: Mapping[str, Any], differing: Sequence[str]) -> str:
    said = [part for part in differing if part in rest]
    words = [
        str(rest[part]) if part in ("method", "models") else f"{part} {rest[part]}" for part in said
    ]
    return ", ".join(words) or str(rest["method"])


def _place(experiment: Experiment, run: str) -> _Place:
    spec, options = experiment.run(run), experiment.section.options
    complete = resolve(spec.method, spec.options).options.model_dump(mode="json")
    owned = [name for name in options if name in complete]
    owner = f"experiments.{experiment.name}: run {run!r}"
    if len(owned) != 1:
        raise UserError(
            f"{owner} of method {spec.method} has {len(owned)} of the options {list(options)};"
            " name exactly one that it has, or leave the run out"
        )
    value = complete.pop(owned[0])
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{owner}: {owned[0]} is {value!r}; only numbers can be swept over")
    beside = (spec.method, "+".join(spec.models), spec.weights, spec.max_rounds)
    rest = dict(zip(_BESIDE_OPTIONS, beside, strict=True))
    return _Place(run, owned[0], value, rest | complete)


def _refuse_twins(
    experiment: Experiment, places: Mapping[str, _Place], series: Mapping[str, str]
) -> None:
    seen: dict[tuple[str, float], str] = {}
    for run, place in places.items():
        other = seen.setdefault((series[run], place.x), run)
        if other != run:
            raise UserError(
                f"experiments.{experiment.name}: runs {other!r} and {run!r} differ in nothing but"
                f" their names ({place.option} {place.x}); leave one out"
            )


def _point(experiment: Experiment, score: Score, place: _Place, series: str) -> SweepPoint:
    return SweepPoint(
        **asdict(experiment.names(score.run)),
        benchmark=score.benchmark,
        protocol=score.protocol,
        series=series,
        option=place.option,
        x=place.x,
        metric=score.primary,
        n=score.n,
        value=score.main.value,
        low=score.main.low,
        high=score.main.high,
    )
