"""What pydantic finds wrong with a configuration, as one sentence."""

import json
import os
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from adafuse.config.benchmarks import (
    BenchmarkConfig,
    FieldsConfig,
    PaperConfig,
    SampleConfig,
    ShotsConfig,
    SourceConfig,
)
from adafuse.config.checks import check_config
from adafuse.config.config import Config
from adafuse.config.fields import Section
from adafuse.config.runs import DecodeConfig, ExperimentConfig, MainConfig, ModelConfig, RunConfig
from adafuse.errors import UserError

_NAMED: dict[str, type[Section]] = {
    "models": ModelConfig,
    "benchmarks": BenchmarkConfig,
    "runs": RunConfig,
    "experiments": ExperimentConfig,
}
_OF_BENCHMARK: dict[str, type[Section]] = {
    "source": SourceConfig,
    "source.fields": FieldsConfig,
    "shots": ShotsConfig,
    "sample": SampleConfig,
    "paper": PaperConfig,
}


def sentence(error: ErrorDetails, benchmark_file: str | None = None) -> str:
    """Say what is wrong, where, and what would be right.

    `benchmark_file` is what the values come from, if not from the configuration itself.
    """
    location = [str(part) for part in error["loc"]] or ["config"]
    inside = ["benchmarks", benchmark_file] if benchmark_file else []
    *above, last = location
    where = ".".join([*inside[1:], *above]) or "the config"
    match error["type"]:
        case "extra_forbidden":
            known = ", ".join(_known([*inside, *above]))
            return f"unknown key {last!r} in {where}; known are: {known}"
        case "missing":
            return f"{where} has no {last!r}; add it"
        case "string_pattern_mismatch":
            return (
                f"{'.'.join(above[:-1])}: {above[-1]!r} cannot name a file; use letters, digits,"
                " _, - and . (not first)"
            )
    said = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    reason = said.replace("should", "must")
    owner = benchmark_file or "config"
    return f"{owner}: {'.'.join(location)} {reason}, not {error['input']!r}"


def _known(path: list[str]) -> list[str]:
    match path:
        case ["benchmarks", _]:
            return [*BenchmarkConfig.model_fields, "use"]
        case ["benchmarks", _, *inner]:
            return list(_OF_BENCHMARK[".".join(inner)].model_fields)
        case [kind, _] if kind in _NAMED:
            return [*_NAMED[kind].model_fields, *(["sweep"] if kind == "runs" else [])]
        case ["decode"]:
            return list(DecodeConfig.model_fields)
        case ["main"]:
            return list(MainConfig.model_fields)
    return list(Config.model_fields)


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


_OF_A_DATASET = ("dataset", "config", "answer_config", "split", "revision", "fields")


def with_used_files(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in which every `use` is replaced by what its file says.

    Keys beside `use` go before those of the file, within sections too. Another `file` as source
    replaces a dataset with all that belongs to it; another `dataset` (a copy in a folder, say)
    keeps its configuration, split and fields, but not the revision.

    Raises:
        UserError: a file cannot be read, or holds what no benchmark has.
    """
    benchmarks = values.get("benchmarks")
    if not isinstance(benchmarks, Mapping):
        return dict(values)
    resolved = {name: _resolved(name, entry) for name, entry in benchmarks.items()}
    return {**values, "benchmarks": resolved}


def _resolved(name: object, entry: Any) -> Any:
    if not isinstance(entry, Mapping) or "use" not in entry:
        return entry
    file = entry["use"]
    if not isinstance(file, str) or not file:
        raise UserError(f"config: benchmarks.{name}.use must be the path of a file, not {file!r}")
    own = {key: value for key, value in entry.items() if key != "use"}
    return _merged(_read(file, f"benchmarks.{name}"), own)


def _read(file: str, owner: str) -> dict[str, Any]:
    try:
        values = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{owner}: file {file!r} cannot be read: {reason}") from None
    if not isinstance(values, dict):
        raise UserError(f"{owner}: file {file!r} holds no keys; see docs/benchmarks.md")
    _check(values, file)
    return _located(values, os.path.dirname(file))


def _check(values: dict[str, Any], file: str) -> None:
    """Refuse what is wrong in the file itself; what it lacks may stand beside `use`."""
    try:
        BenchmarkConfig.model_validate(values)
    except ValidationError as error:
        wrong = [each for each in error.errors() if each["type"] != "missing"]
        if wrong:
            raise UserError(sentence(wrong[0], file)) from None


def _located(values: dict[str, Any], folder: str) -> dict[str, Any]:
    """Make the paths in a benchmark's file, which are relative to it, relative to where we are."""

    def place(path: str) -> str:
        return os.path.normpath(os.path.join(folder, path))

    located = dict(values)
    for section in ("source", "shots"):
        inner = values.get(section)
        if isinstance(inner, dict) and inner.get("file"):
            located[section] = {**inner, "file": place(inner["file"])}
    source = located.get("source") or {}
    if str(source.get("dataset")).startswith("."):
        located["source"] = {**source, "dataset": place(source["dataset"])}
    if values.get("ids_file"):
        located["ids_file"] = place(values["ids_file"])
    return located


def _merged(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        inner = merged.get(key)
        if isinstance(inner, dict) and isinstance(value, Mapping):
            merged[key] = _merged(_without_rival(inner, value) if key == "source" else inner, value)
        else:
            merged[key] = value
    return merged


def _without_rival(source: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    gone: tuple[str, ...] = ()
    if "file" in change:
        gone = _OF_A_DATASET
    elif "dataset" in change:
        gone = ("file", "revision")
    return {key: value for key, value in source.items() if key not in gone}


def parse_config(values: Mapping[str, Any]) -> Config:
    """Check everything that can be known before any file is read or written.

    Raises:
        UserError: the first thing that is wrong, with the value and the fix.
    """
    config = _typed(values)
    check_config(config)
    return config


def read_config(path: Path) -> Config:
    """Read a configuration: the one that the workflow stored, or one for Snakemake (YAML).

    Only its form is checked; the workflow has checked the rest when it started.

    Raises:
        UserError: no such file, or not of the form of a configuration.
    """
    try:
        text = path.read_text(encoding="utf-8")
        # YAML is slow to read, and does not take every string that JSON does.
        values = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"configuration {str(path)!r} cannot be read: {reason}") from None
    if not isinstance(values, dict):
        raise UserError(f"configuration {str(path)!r} holds no keys; see config/README.md")
    return _typed(values)


def _typed(values: Mapping[str, Any]) -> Config:
    try:
        return Config.model_validate(with_sweeps(with_used_files(values)))
    except ValidationError as error:
        raise UserError(sentence(error.errors()[0])) from None


def to_json(config: Config) -> str:
    """Return the resolved configuration, every default filled in."""
    return json.dumps(config.model_dump(mode="json"), ensure_ascii=False, indent=2)
