"""From plain values to a checked `Config`; the first thing that is wrong becomes one sentence."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from adafuse.errors import UserError
from adafuse.pipeline.checks import check_config
from adafuse.pipeline.config import (
    BenchmarkConfig,
    Config,
    DecodeConfig,
    ModelConfig,
    RunConfig,
    Section,
    SourceConfig,
)

_NAMED: dict[str, type[Section]] = {
    "models": ModelConfig,
    "benchmarks": BenchmarkConfig,
    "runs": RunConfig,
}


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
        return Config.model_validate(dict(values))
    except ValidationError as error:
        raise UserError(_sentence(error.errors()[0])) from None


def to_json(config: Config) -> str:
    """Return the resolved configuration, every default filled in."""
    return json.dumps(config.model_dump(mode="json"), ensure_ascii=False, indent=2)


def _sentence(error: ErrorDetails) -> str:
    *above, last = (str(part) for part in error["loc"] or ("config",))
    where = ".".join(above) or "the config"
    match error["type"]:
        case "extra_forbidden":
            known = ", ".join(_section(above).model_fields)
            return f"unknown key {last!r} in {where}; known are: {known}"
        case "missing":
            return f"{where} has no {last!r}; add it"
        case "string_pattern_mismatch":
            return (
                f"{'.'.join(above[:-1])}: {above[-1]!r} cannot name a file; use letters, digits,"
                " _, - and . (not first)"
            )
    reason = error["msg"].removeprefix("Input ").replace("should", "must")
    return f"config: {'.'.join([*above, last])} {reason}, not {error['input']!r}"


def _section(path: list[str]) -> type[Section]:
    match path:
        case [kind, _] if kind in _NAMED:
            return _NAMED[kind]
        case ["benchmarks", _, "source"]:
            return SourceConfig
        case ["decode"]:
            return DecodeConfig
    return Config
