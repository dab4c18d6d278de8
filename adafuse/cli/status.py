"""`adafuse status`: how far a results folder is."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from adafuse.errors import UserError
from adafuse.pipeline.status import (
    FailedStep,
    ShardStatus,
    State,
    by_run,
    failed_steps,
    shard_statuses,
)

FAILED, UNFINISHED = 1, 3
_STATES = get_args(State)


def status(
    results: Annotated[Path, typer.Argument(help="A results folder.")] = Path("results"),
    config: Annotated[
        Path | None, typer.Option(help="Compare with this configuration, not the one last run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Every shard, as JSON.")] = False,
) -> None:
    """Say what is decoded, under way, stopped, failed or stale; run it where Snakemake runs.

    Exit status: 0 all is decoded; 1 something failed; 2 the command is wrong; 3 not all is there.
    """
    from adafuse.pipeline.parse import read_config
    from adafuse.pipeline.plan import Plan
    from adafuse.pipeline.prefetch import with_commits

    stored = results / "config.json"
    if config is None and not stored.is_file():
        raise UserError(f"{str(stored)!r} does not exist; name a results folder, or run snakemake")
    settings = read_config(config or stored).model_copy(update={"results": str(results)})
    # Not checked: what is somebody else's to write can be looked at.
    plan = Plan(with_commits(settings))
    shards, steps = shard_statuses(plan), failed_steps(plan)
    if as_json:
        told = {"shards": list(map(asdict, shards)), "failed_steps": list(map(asdict, steps))}
        typer.echo(json.dumps(told, indent=2))
    else:
        _print(shards, steps)
    states = {shard.state for shard in shards}
    if steps or "failed" in states:
        raise typer.Exit(FAILED)
    raise typer.Exit(0 if states <= {"done"} else UNFINISHED)


def _print(shards: list[ShardStatus], steps: list[FailedStep]) -> None:
    console = Console(soft_wrap=True)
    table = Table("benchmark", "run", title="Shards by state, and rows")
    for state in (*_STATES, "rows"):
        table.add_column(state, justify="right")
    for group in by_run(shards):
        counts = Counter(shard.state for shard in group)
        rows = f"{sum(shard.rows for shard in group)}/{sum(shard.of for shard in group)}"
        cells = [str(counts[state] or "") for state in _STATES]
        table.add_row(escape(group[0].benchmark), escape(group[0].run), *cells, rows)
    console.print(table)
    for shard in shards:
        if shard.state not in ("done", "waiting"):
            console.print(escape(_sentence(shard)))
    for step in steps:
        console.print(escape(f"failed: {step.log}: {step.error}"))


def _sentence(shard: ShardStatus) -> str:
    name = f"{shard.benchmark}/{shard.run}/{shard.shard}"
    rows = f"{shard.rows} of {shard.of} rows"
    detail = f", {shard.detail}" if shard.detail else ""
    return f"{shard.state}: {name}: {rows}{detail}{f' ({shard.log})' if shard.log else ''}"
