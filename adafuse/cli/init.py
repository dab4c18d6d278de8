"""`adafuse init`: a folder from which `snakemake` runs, without a clone."""

import shlex
import shutil
from pathlib import Path
from typing import Annotated

import typer

from adafuse.errors import UserError
from adafuse.storage.files import shipped, write_text

SNAKEFILE = """\
# The workflow of the installed package `adafuse`, with the configuration of this folder. Rules of
# your own may follow; to change one of the workflow's: `use rule score from adafuse with: ...`.

from adafuse.storage.files import shipped


# A configuration given with --configfile replaces this one; the two are not merged.
if not workflow.overwrite_configfiles:

    configfile: "config/config.yaml"


module adafuse:
    snakefile:
        str(shipped("workflow") / "Snakefile")
    config:
        config


use rule * from adafuse
"""
NOT_WANTED = shutil.ignore_patterns("smoke.yaml", "plugin", "__pycache__")
NOT_BESIDE = shutil.ignore_patterns("tests", "__pycache__")


def init(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder.", metavar="FOLDER")],
    plugin: Annotated[
        bool,
        typer.Option(
            "--plugin",
            help="Add a method, a fusion rule, a scorer and a benchmark to change, and tests.",
        ),
    ] = False,
) -> None:
    """Write a folder in which `snakemake --cores 2` decodes, scores and compares.

    The folder has a configuration for you to change, the other configurations
    of AdaFuse, a Snakefile that uses the installed workflow, and the Slurm
    profile.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"{str(folder)!r} is not an empty folder; name a new one")
        shutil.copytree(shipped("config"), folder / "config", ignore=NOT_WANTED, dirs_exist_ok=True)
        if plugin:
            own = shipped("config") / "plugin"
            shutil.copytree(own, folder / "config", ignore=NOT_BESIDE, dirs_exist_ok=True)
            shutil.copytree(own / "tests", folder / "tests")
        shutil.copytree(shipped("workflow") / "profiles", folder / "workflow" / "profiles")
        (folder / "slurm").symlink_to("workflow/profiles/slurm")
    except OSError as error:
        raise UserError(
            f"{str(folder)!r} cannot be written ({error.strerror or error}); name another folder"
        ) from None
    write_text(folder / "workflow" / "Snakefile", SNAKEFILE)
    write_text(folder / ".gitignore", "/.snakemake/\n/results/\n")
    beside = ", and the plug-ins beside it" * plugin
    typer.echo(f"{folder}/config/config.yaml names two toy models and a benchmark{beside}. Next:")
    typer.echo(f"  cd {shlex.quote(str(folder))} && snakemake --cores 2")
    typer.echo("Then read results/tables/main.md, and open results/report/index.html.")
    if plugin:
        typer.echo("The tests of the plug-ins: python -m pytest tests")
