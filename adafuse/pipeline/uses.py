"""Benchmarks that a configuration takes from files of their own: `use: FILE`, then changes."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from adafuse.errors import UserError
from adafuse.pipeline.config import BenchmarkConfig
from adafuse.pipeline.sentences import sentence

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
