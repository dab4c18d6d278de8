"""`adafuse methods`: what can be decoded with, and the options of each method."""

import inspect
import json
import textwrap
from typing import Annotated, Any

import typer

from adafuse.cli.options import AsJson, method_names, with_plugins
from adafuse.cli.output import echo_json
from adafuse.errors import UserError
from adafuse.options import CHANGE_WHEN, WHEN
from adafuse.plugins import not_there


@with_plugins
def methods(
    method: Annotated[
        str | None,
        typer.Argument(
            help="Describe this method in full.",
            metavar="METHOD",
            autocompletion=method_names,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the decoding methods with their options and defaults."""
    from adafuse.methods import METHODS
    from adafuse.methods.selections import SELECTIONS

    methods: dict[str, Any] = {**METHODS, **SELECTIONS}
    if method is not None and method not in methods:
        raise UserError(not_there("method", method, list(methods)))
    if as_json:
        names = methods if method is None else [method]
        echo_json([_record(name, methods[name], name in SELECTIONS) for name in names])
    elif method is not None:
        _explain(method, methods[method])
    else:
        for name in methods:
            if name == next(iter(SELECTIONS)):
                typer.echo("\nIn a workflow only, choices between the texts of other runs:")
            typer.echo(f"{name}: {_summary(methods[name])}")
            for option, field in methods[name].Options.model_fields.items():
                typer.echo(f"    {option} ({_default(field)})")
        typer.echo("\n`adafuse methods NAME` says what the options of a method mean.")


def _explain(name: str, method: Any) -> None:
    typer.echo(f"{name}: {inspect.getdoc(method)}")
    if method.Options.model_fields and method.Options.__doc__:
        typer.echo(f"\n{inspect.cleandoc(method.Options.__doc__)}\n")
    kinds = method.Options.model_json_schema().get("properties", {})
    for option, field in method.Options.model_fields.items():
        kind = kinds.get(option, {})
        typer.echo(f"    {option} ({_default(field)}{_kind(kind)})")
        if text := WHEN.join(kind[key] for key in ("description", CHANGE_WHEN) if key in kind):
            text = textwrap.fill(text, 72, break_on_hyphens=False)
            typer.echo(textwrap.indent(text, " " * 8))


def _record(name: str, method: Any, chooses: bool) -> dict[str, Any]:
    fewest, most = getattr(method, "models", (1, None))
    return {
        "name": name,
        "summary": _summary(method),
        "workflow_only": chooses,
        "models": {"fewest": fewest, "most": most},
        "options": method.Options.model_json_schema().get("properties", {}),
        "required": [n for n, field in method.Options.model_fields.items() if field.is_required()],
    }


def _summary(method: Any) -> str:
    """Return the first paragraph of a method's docstring, as one line."""
    return " ".join((inspect.getdoc(method) or "").split("\n\n")[0].split())


def _default(field: Any) -> str:
    return "required" if field.is_required() else f"default {json.dumps(field.default)}"


def _kind(schema: dict[str, Any]) -> str:
    names = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}
    names["exclusiveMaximum"] = "below"
    limits = [f"{names[key]} {value}" for key, value in schema.items() if key in names]
    if "enum" in schema:
        limits.append("one of " + ", ".join(map(str, schema["enum"])))
    return "".join(f"; {limit}" for limit in limits)
