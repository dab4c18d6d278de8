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
    """Return the position of each run.

    Args:
        owner: names the experiment in errors.
        options: what is swept over, under the names that the methods have for it.
        runs: by name; all decode.

    Raises:
        UserError: a run has none or several of the options, or no number there; two runs have
            the same position.
    """
    axes = {name: _axis(f"{owner}: run {name!r}", run, options) for name, run in runs.items()}
    rests = {name: _rest(run, axes[name][0]) for name, run in runs.items()}
    series = series_labels(rests)
    found = {name: SweepPosition(*axes[name], series[name]) for name in runs}
    _refuse_twins(owner, found)
    return found


def series_labels(rests: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return a label per run that says in what its series differs from the others.

    Args:
        rests: per run what it is made of, the option of the sweep left out. Runs of equal ones are
            one series. A part that only some have (options of other methods) distinguishes none.
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


def _complete(run: RunConfig) -> dict[str, Any]:
    options: dict[str, Any] = resolve(run.method, run.options).options.model_dump(mode="json")
    return options


def _axis(owner: str, run: RunConfig, options: Sequence[str]) -> tuple[str, float]:
    complete = _complete(run)
    owned = [name for name in options if name in complete]
    if len(owned) != 1:
        raise UserError(
            f"{owner} of method {run.method} has {len(owned)} of the options {list(options)};"
            " name exactly one that it has, or leave the run out"
        )
    value = complete[owned[0]]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{owner}: {owned[0]} is {value!r}; only numbers can be swept over")
    return owned[0], value


def _rest(run: RunConfig, option: str) -> dict[str, Any]:
    beside = {
        "method": run.method,
        "models": "+".join(run.models),
        "weights": run.weights,
        "max_rounds": run.max_rounds,
    }
    return beside | {name: value for name, value in _complete(run).items() if name != option}


def _refuse_twins(owner: str, found: Mapping[str, SweepPosition]) -> None:
    seen: dict[tuple[str, float], str] = {}
    for run, position in found.items():
        other = seen.setdefault((position.series, position.x), run)
        if other != run:
            raise UserError(
                f"{owner}: runs {other!r} and {run!r} differ in nothing but their names"
                f" ({position.option} {position.x}); leave one out"
            )
