"""What the shell suggests for the values of options; `adafuse --install-completion` turns it on.

Nothing that takes long is imported or read, and what goes wrong suggests nothing.
"""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from adafuse.errors import UserError

Suggest = Callable[[str], list[str]]


def one_of(*values: str) -> Suggest:
    """Return what suggests some of `values`."""

    def suggest(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return suggest


def method_names(incomplete: str) -> list[tuple[str, str]]:
    """Suggest decoding methods, with the first line of what they say of themselves."""
    from adafuse.methods import METHODS

    return [
        (name, inspect.cleandoc(method.__doc__ or "").split("\n")[0])
        for name, method in METHODS.items()
        if name.startswith(incomplete)
    ]


def method_options(ctx: typer.Context, incomplete: str) -> list[str]:
    """Suggest NAME= for the options of the method that the command names."""
    from adafuse.methods import METHODS

    method = METHODS.get(ctx.params.get("method") or "adafuse")
    names = method.Options.model_fields if method else ()
    return [f"{name}=" for name in names if name.startswith(incomplete)]


def model_folders(incomplete: str) -> list[str]:
    """Suggest folders: those of models, and with a slash those that may hold some."""
    return list(_folders(incomplete))


def example_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Suggest examples of the trace that the command names."""
    from adafuse.traces.table import read_rows

    # An option that still lacks its value keeps the arguments before it from being read.
    trace = ctx.params.get("trace") or next(iter(ctx.args), None)
    try:
        rows = read_rows(Path(trace), ["id"]) if trace else []
    except UserError:
        return []
    return [str(row["id"]) for row in rows if str(row["id"]).startswith(incomplete)]


def _folders(incomplete: str) -> Iterator[str]:
    before, slash, name = incomplete.rpartition("/")
    try:
        found = sorted(Path(before + slash or ".").expanduser().iterdir())
    except OSError:
        return
    for path in found:
        if path.is_dir() and path.name.startswith(name) and (name or path.name[0] != "."):
            whole = (path / "config.json").is_file()
            yield f"{before}{slash}{path.name}" + "/" * (not whole)
