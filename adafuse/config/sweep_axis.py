"""The position of runs in a sweep, as the configuration says: a number on an axis, and a series."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adafuse.config.runs import RunConfig
from adafuse.errors import UserError
from adafuse.methods import resolve


@dataclass(frozen=True, slots=True)
class SweepPosition:
    """`x` along `option`, in the series of the runs that differ in nothing else."""

    option: str
    x: float
    series: str


def sweep_positions(
    owner: str, options: Sequence[str], runs: Mapping[str, RunConfig]
) -> dict[str, SweepPosition]:
    """Return the position of each run by name; `options` are the methods' names for the axis.

    Refused are runs with none or several of the options, or no number there, and two runs of the
    same position. `owner` names the experiment in errors.
    """
    axes: dict[str, tuple[str, float]] = {}
    others: dict[str, dict[str, Any]] = {}
    for name, run in runs.items():
        values = resolve(run.method, run.options).options.model_dump(mode="json")
        option = _axis(f"{owner}: run {name!r}", run.method, options, values)
        axes[name] = option, values.pop(option)
        others[name] = {
            "method": run.method,
            "models": "+".join(run.models),
            "weights": run.weights,
            "max_rounds": run.max_rounds,
            **values,
        }
    series = series_labels(others)
    first: dict[tuple[str, float], str] = {}
    for name, (option, x) in axes.items():
        if (twin := first.setdefault((series[name], x), name)) != name:
            raise UserError(
                f"{owner}: runs {twin!r} and {name!r} differ only in their names"
                f" ({option} {x}); leave one out"
            )
    return {name: SweepPosition(*axis, series[name]) for name, axis in axes.items()}


def _axis(owner: str, method: str, options: Sequence[str], values: Mapping[str, Any]) -> str:
    owned = [name for name in options if name in values]
    if len(owned) != 1:
        raise UserError(
            f"{owner} of method {method} has {len(owned)} of the options {list(options)};"
            " name exactly one that it has, or leave the run out"
        )
    value = values[owned[0]]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{owner}: {owned[0]} is {value!r}; only numbers can be swept over")
    return owned[0]


def series_labels(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return a label per run that says in which settings its series differs from the others.

    Runs of equal settings are one series. A setting that only some runs have (an option of another
    method) distinguishes none.
    """
    names = dict.fromkeys(name for values in settings.values() for name in values)
    differing = [
        name
        for name in names
        if len({repr(values[name]) for values in settings.values() if name in values}) > 1
    ]
    return {run: _label(values, differing) for run, values in settings.items()}


def _label(values: Mapping[str, Any], differing: Sequence[str]) -> str:
    words = [
        str(values[name]) if name in ("method", "models") else f"{name} {values[name]}"
        for name in differing
        if name in values
    ]
    return ", ".join(words) or str(values["method"])
