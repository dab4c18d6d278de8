"""`adafuse preflight`: what jobs would fail of on this machine."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from adafuse.cli.errors import FAILED
from adafuse.cli.options import AsJson
from adafuse.cli.output import counted, echo_json
from adafuse.records.views import one_line

_COLORS = {"ok": "green", "warn": "yellow", "fail": "red"}


def preflight(
    config: Annotated[
        list[Path] | None,
        typer.Argument(help="Configurations, as for --configfile.", metavar="CONFIG"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a machine before jobs run there: node, GPUs, versions, disks, hub, token.

    With a configuration: whether all that it needs is on the machine, and its
    GPUs are as many as jobs ask for. Submit it as a job to check a node of a
    cluster (docs/hpc.md). 64 MB are written into the results folder, or into
    the current one, and removed. No token is printed. Exit status: 0 nothing
    fails (there may be warnings), 1 something does.
    """
    from adafuse.config.reading import read_configs
    from adafuse.workflow.prefetch import with_commits
    from adafuse.workflow.preflight import preflight as found

    checks = found(with_commits(read_configs(config)) if config else None)
    counts = Counter(check.status for check in checks)
    if as_json:
        echo_json({"checks": [*map(asdict, checks)], "healthy": not counts["fail"]})
    else:
        for check in checks:
            status = typer.style(f"{check.status:<5}", fg=_COLORS[check.status], bold=True)
            typer.echo(f"{status} {check.name:<10} {one_line(check.text)}")
        typer.echo(f"{counted(counts['fail'], 'failure')}, {counted(counts['warn'], 'warning')}")
    raise typer.Exit(FAILED if counts["fail"] else 0)
