"""Help without a type behind options that take no value; typer writes <bool> there."""

import logging
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from adafuse.cli.bench import bench
from adafuse.cli.doctor import doctor
from adafuse.cli.errors import epilog, run
from adafuse.cli.generate import generate
from adafuse.cli.methods import methods
from adafuse.cli.report import report
from adafuse.cli.score import audit, score
from adafuse.cli.show import show
from adafuse.cli.status import status
from adafuse.cli.steps import app as app_steps
from adafuse.lm_eval.register import run_harness
from adafuse.version import __version__


class PlainCommand(TyperCommand):
    """A command whose flags show no type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all options and arguments, `--help` included."""
        return _plain(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group of commands whose flags show no type."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all options, `--help` included."""
        return _plain(super().get_params(ctx))


def _plain(parameters: list[Any]) -> list[Any]:
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return parameters


PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Everything, `--help` included, is for the harness."""


def lm_eval(context: typer.Context) -> None:
    """Run lm-evaluation-harness, to which --model adafuse is known (docs/lm-eval.md)."""
    run_harness(context.args)


DECODE, EVALUATE, MACHINE, INSIDE = "Decode", "Evaluate", "This machine", "Inside the workflow"

app = typer.Typer(
    name="adafuse",
    cls=PlainGroup,
    help="Decode with several language models at once, and evaluate what comes out.",
    epilog=epilog("adafuse"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _panel, _command in (
    (DECODE, generate),
    (DECODE, show),
    (DECODE, methods),
    (EVALUATE, score),
    (EVALUATE, audit),
    (EVALUATE, report),
    (EVALUATE, status),
    (MACHINE, doctor),
    (MACHINE, bench),
):
    app.command(cls=PlainCommand, epilog=epilog(_command.__name__), rich_help_panel=_panel)(
        _command
    )
app.command("lm-eval", context_settings=PASS_ON, rich_help_panel=EVALUATE)(lm_eval)
app.add_typer(app_steps, name="step", rich_help_panel=INSIDE)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"adafuse {__version__}")
        raise typer.Exit


@app.callback()
def _settings(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
) -> None:
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")


def main() -> None:
    """Run a command and exit with its status."""
    sys.exit(run(app))
