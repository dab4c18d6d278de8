"""`adafuse methods`: what can be decoded with, and the options of each method."""

import typer

from adafuse.methods import METHODS


def methods() -> None:
    """List the decoding methods with their options and defaults."""
    for name, method in METHODS.items():
        summary = (method.__doc__ or "").split("\n")[0]
        typer.echo(f"{name}: {summary}")
        for option, field in method.Options.model_fields.items():
            typer.echo(f"    --{option.replace('_', '-')} (default {field.default})")
