"""From plain values to a checked `Config`; the first thing that is wrong becomes one sentence."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from adafuse.errors import UserError
from adafuse.pipeline.checks import check_config
from adafuse.pipeline.config import Config
from adafuse.pipeline.sentences import sentence
from adafuse.pipeline.sweeps import with_sweeps
from adafuse.pipeline.uses import with_used_files


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
