"""How results reach a terminal or a pipe."""

import json
import math
import sys
from typing import Any

import typer

from adafuse.records.views import harmless


def echo_json(value: Any) -> None:
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


def json_line(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


def plain(value: Any) -> Any:
    """Return a value with null for numbers that are not finite, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def write(text: str) -> None:
    """Write a part of a text at once; as it is, unless it goes to a terminal."""
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()
