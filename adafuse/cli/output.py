"""How results reach a terminal or a pipe."""

import sys
from typing import Any

import typer
from pydantic_core import to_json

from adafuse.records.views import harmless


def echo_json(value: Any) -> None:
    typer.echo(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """Return records and plain values as JSON; what is not finite is null, as JSON has no NaN."""
    return to_json(value, indent=indent, inf_nan_mode="null").decode()


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def write(text: str) -> None:
    """Write a part of a text at once; as it is, unless it goes to a terminal."""
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()
