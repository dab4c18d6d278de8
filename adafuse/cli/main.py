"""`adafuse`: all commands, and how their errors read."""

import logging
import sys
from typing import Annotated

import typer

from adafuse.cli.audit import audit
from adafuse.cli.bench import bench
from adafuse.cli.generate import generate
from adafuse.cli.lm_eval import PASS_ON, lm_eval
from adafuse.cli.methods import methods
from adafuse.cli.report import report
from adafuse.cli.score import score
from adafuse.cli.show import show
from adafuse.cli.status import status
from adafuse.cli.steps import app as steps
from adafuse.errors import UserError
from adafuse.version import __version__

app = typer.Typer(
    name="adafuse",
    help="Decode with several language models at once, and evaluate what comes out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(generate)
app.command()(show)
app.command()(methods)
app.command()(score)
app.command()(audit)
app.command()(report)
app.command()(bench)
app.command()(status)
app.command("lm-eval", context_settings=PASS_ON)(lm_eval)
app.add_typer(steps, name="step")


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
    """Run a command; a user's mistake is one line on stderr and exit status 2."""
    try:
        app()
    except UserError as error:
        _tell(f"error: {error}")
        sys.exit(2)


def _tell(sentence: str) -> None:
    try:
        typer.echo(sentence, err=True)
    except OSError:  # stderr is a log on the disk that is full
        typer.echo(sentence)
