"""`adafuse pin`: commits of the hub, written into a configuration."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from adafuse.cli.options import AsJson
from adafuse.cli.output import counted, echo_json


def pin(
    config: Annotated[Path, typer.Argument(help="A configuration.", metavar="CONFIG")],
    as_json: AsJson = False,
) -> None:
    """Write commits of the hub into a configuration, and into the files that it uses.

    Models and data sets without a `revision` get one: the commit that `snakemake
    prefetch` has recorded, else that of the hub's default branch, else that in
    this machine's cache. Nothing else in the files changes.
    """
    from adafuse.workflow.pin import pin as write_commits

    pinned = write_commits(config)
    if as_json:
        echo_json({"pinned": [*map(asdict, pinned)]})
        return
    for each in pinned:
        typer.echo(f"{each.place}: {each.commit} ({each.path}, from {each.source})")
    files = {each.place.partition(": ")[0] for each in pinned}
    here = f"{counted(len(pinned), 'commit')} written into {counted(len(files), 'file')}"
    typer.echo(here if pinned else "nothing to pin: all that is of the hub has a revision")
