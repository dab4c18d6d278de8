"""How results reach a terminal or a pipe."""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer
from pydantic_core import to_json

from adafuse.errors import UserError
from adafuse.records.views import harmless

if TYPE_CHECKING:
    from adafuse.report.stored import StoredResults


def echo_json(value: Any) -> None:
    typer.echo(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """Return records and plain values as JSON; what is not finite is null, as JSON has no NaN."""
    return to_json(value, indent=indent, inf_nan_mode="null").decode()


def warn_of_stale(results: "StoredResults", *, tables: bool = False) -> None:
    """Say on standard error that results are not those of the files of today, if they are here.

    `tables` says whether these and figures are shown, too.
    """
    from adafuse.workflow.plan import Plan
    from adafuse.workflow.prefetch import with_commits

    with suppress(UserError):
        plan = Plan(with_commits(results.config))
        if stale := [*results.stale(plan), *(plan.outdated() if tables else ())]:
            more = f", nor {counted(len(stale) - 1, 'other file')}" * (len(stale) > 1)
            typer.echo(
                f"warning: {str(stale[0])!r} is not up to date{more}; run snakemake", err=True
            )


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def write(text: str) -> None:
    """Write a part of a text at once; as it is, unless it goes to a terminal."""
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()
