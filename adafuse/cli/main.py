"""The command line: its commands, in the panels that help shows them in."""

import logging
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from adafuse.cli.advise import advise
from adafuse.cli.bench import bench
from adafuse.cli.doctor import doctor
from adafuse.cli.errors import epilog, run
from adafuse.cli.export import export
from adafuse.cli.fit import fit
from adafuse.cli.generate import generate
from adafuse.cli.init import init
from adafuse.cli.methods import methods
from adafuse.cli.pin import pin
from adafuse.cli.plan import plan
from adafuse.cli.preflight import preflight
from adafuse.cli.processor import processor
from adafuse.cli.report import report
from adafuse.cli.score import audit, score
from adafuse.cli.serve import serve
from adafuse.cli.show import show
from adafuse.cli.status import status
from adafuse.cli.steps import app as app_steps
from adafuse.lm_eval.register import run_harness
from adafuse.storage.files import located
from adafuse.version import __version__


class PlainFlags:
    """Help without a type after options that take no value; typer writes <bool> there."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return parameters


class PlainCommand(PlainFlags, TyperCommand):
    pass


class PlainGroup(PlainFlags, TyperGroup):
    pass


PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Everything, `--help` included, is for the harness."""


def lm_eval(context: typer.Context) -> None:
    """Run lm-evaluation-harness, to which --model adafuse is known (docs/lm-eval.md)."""
    run_harness(context.args)


app = typer.Typer(
    name="adafuse",
    cls=PlainGroup,
    help="Decode with several language models at once, and evaluate what comes out.",
    epilog=epilog("adafuse"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Decode": (generate, serve, fit, advise, show, methods),
    "Evaluate": (init, pin, plan, score, audit, report, export, status),
    "This machine": (doctor, preflight, processor, bench),
}


def _located(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [*map(_located, value)]
    return Path(located(str(value))) if isinstance(value, Path) else value


def _with_paths(command: Callable[..., None]) -> Callable[..., None]:
    """Fill in `~` and variables of paths: a shell leaves those of `--out=~/x` as they are."""

    @wraps(command)
    def run(**given: Any) -> None:
        command(**{name: _located(value) for name, value in given.items()})

    return run


for _panel, _commands in COMMANDS.items():
    for _command in _commands:
        _examples = epilog(_command.__name__)
        app.command(cls=PlainCommand, epilog=_examples, rich_help_panel=_panel)(
            _with_paths(_command)
        )
app.command("lm-eval", context_settings=PASS_ON, rich_help_panel="Evaluate")(lm_eval)
app.add_typer(app_steps, name="step", rich_help_panel="Inside the workflow")


def _print_version(given: bool) -> None:
    if given:
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
    sys.exit(run(app))
