"""Runs written once for several values of an option: `sweep: {tau: [0.5, 0.7]}`."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from adafuse.errors import UserError


def with_sweeps(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in which every run with a `sweep` is a run per value.

    A run NAME with `sweep: {tau: [0.5, 0.7]}` becomes NAME_0.5 and NAME_0.7; several options give
    every combination. Where the main table or an experiment lists NAME, all of them are meant.

    Raises:
        UserError: a sweep that is no list of values per option.
    """
    runs = values.get("runs")
    if not isinstance(runs, Mapping):
        return dict(values)
    members = {name: _members(name, run) for name, run in runs.items()}
    expanded = {name: run for group in members.values() for name, run in group.items()}
    if len(expanded) < sum(map(len, members.values())):
        names = [name for group in members.values() for name in group]
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"runs: there are two runs {twice!r} after sweeps; rename one")
    named = {name: list(group) for name, group in members.items()}
    main = _listing(values["main"], named) if "main" in values else None
    experiments = values.get("experiments")
    if isinstance(experiments, Mapping):
        experiments = {name: _listing(each, named) for name, each in experiments.items()}
    changed = {"runs": expanded, "main": main, "experiments": experiments}
    return {**values, **{key: value for key, value in changed.items() if value is not None}}


def _members(name: Any, run: Any) -> dict[Any, Any]:
    if not isinstance(run, Mapping) or "sweep" not in run:
        return {name: run}
    sweep = run["sweep"]
    if not isinstance(sweep, Mapping) or not sweep or not all(map(_is_list, sweep.values())):
        raise UserError(
            f"runs.{name}.sweep must map options to lists of values, such as tau: [0.5, 0.7], not"
            f" {sweep!r}"
        )
    own = {key: value for key, value in run.items() if key != "sweep"}
    options = {} if own.get("options") is None else own["options"]
    if not isinstance(options, Mapping):
        return {name: own}
    if both := [option for option in sweep if option in options]:
        raise UserError(f"runs.{name}: {both[0]} is in `sweep` and in `options`; remove it there")
    return {
        "_".join(map(str, (name, *chosen))): {
            **own,
            "options": {**options, **dict(zip(sweep, chosen, strict=True))},
        }
        for chosen in product(*sweep.values())
    }


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _listing(section: Any, members: Mapping[Any, list[Any]]) -> Any:
    if not isinstance(section, Mapping) or not isinstance(section.get("runs"), list):
        return section
    runs = [run for name in section["runs"] for run in members.get(str(name), [name])]
    return {**section, "runs": runs}
