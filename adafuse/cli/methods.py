"""`adafuse methods`: what can be decoded with, and the options of each method."""

import json

import typer
from pydantic.fields import FieldInfo

from adafuse.methods import METHODS
from adafuse.selection.registry import SELECTIONS


def methods() -> None:
    """List the decoding methods with their options and defaults."""
    for name, method in METHODS.items():
        _list(name, method.__doc__, method.Options.model_fields)
    typer.echo("\nIn a workflow only, choices between the texts of other runs:")
    for name, selection in SELECTIONS.items():
        _list(name, selection.__doc__, selection.Options.model_fields)


def _list(name: str, text: str | None, options: dict[str, FieldInfo]) -> None:
    typer.echo(f"{name}: {(text or '').split(chr(10))[0]}")
    for option, field in options.items():
        typer.echo(f"    {option} ({_default(field)})")


def _default(field: FieldInfo) -> str:
    return "required" if field.is_required() else f"default {json.dumps(field.default)}"
