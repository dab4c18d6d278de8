"""`adafuse`: all commands, in groups; `adafuse.cli.errors` says how they end."""

import logging
import sys
from typing import Annotated

import typer

from adafuse.cli.audit import audit
from adafuse.cli.bench import bench
from adafuse.cli.doctor import doctor
from adafuse.cli.errors import run
from adafuse.cli.examples import epilog
from adafuse.cli.generate import generate
from adafuse.cli.lm_eval import PASS_ON, lm_eval
from adafuse.cli.methods import methods
from adafuse.cli.plain_help import PlainCommand, PlainGroup
from adafuse.cli.report import report
from adafuse.cli.score import score
from adafuse.cli.show import show
from adafuse.cli.status import status
from adafuse.cli.steps import app as steps
from adafuse.version import __version__

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
app.add_typer(steps, name="step", rich_help_panel=INSIDE)


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
