"""`adafuse status`: how far a results folder is."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from adafuse.cli.errors import FAILED, UNFINISHED
from adafuse.cli.options import AsJson, option
from adafuse.cli.output import echo_json
from adafuse.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from adafuse.workflow.status import FailedStep, ShardStatus, State


def status(
    results: Annotated[Path, typer.Argument(help="A results folder.", metavar="RESULTS")] = Path(
        "results"
    ),
    config: Annotated[
        Path | None, option("Compare with this configuration, not the one last run.", "FILE")
    ] = None,
    whole: Annotated[
        bool, option("Also the runs that no target asks for.", "", None, "--all")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what of a workflow is decoded, under way, stopped, failed or stale.

    It counts what plain `snakemake` decodes: `targets` of the configuration
    and what these need. Run it in the folder in which Snakemake runs. Exit
    status 0 says that all is decoded, 1 that something failed, 3 that not
    all is there yet.
    """
    from adafuse.config.reading import read_config
    from adafuse.workflow.plan import Plan
    from adafuse.workflow.prefetch import with_commits
    from adafuse.workflow.status import all_cells, failed_steps, shard_statuses, wanted_cells

    stored = results / "config.json"
    if config is None and not stored.is_file():
        raise UserError(f"{str(stored)!r} does not exist; name a results folder, or run snakemake")
    settings = read_config(config or stored).model_copy(update={"results": str(results)})
    # Not checked: what is somebody else's to write can be looked at.
    plan = Plan(with_commits(settings))
    every = all_cells(plan)
    cells = every if whole else wanted_cells(plan)
    shards, steps = shard_statuses(plan, cells), failed_steps(plan)
    if as_json:
        told = {"shards": list(map(asdict, shards)), "failed_steps": list(map(asdict, steps))}
        echo_json(told)
    else:
        _print(shards, steps, sum(len(plan.shards(name)) for name, _ in every) - len(shards))
    states = {shard.state for shard in shards}
    if steps or "failed" in states:
        raise typer.Exit(FAILED)
    raise typer.Exit(0 if states <= {"done"} else UNFINISHED)


def _print(shards: "list[ShardStatus]", steps: "list[FailedStep]", left_out: int) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(soft_wrap=True)
    console.print(_totals(shards, left_out), highlight=False)
    console.print(_table(shards))
    for shard in shards:
        if shard.state not in ("done", "waiting"):
            console.print(escape(_sentence(shard)))
    for step in steps:
        console.print(escape(f"failed: {step.log}: {step.error}"))


def _totals(shards: "list[ShardStatus]", left_out: int) -> str:
    counts = Counter(shard.state for shard in shards)
    states = ", ".join(f"{counts[state]} {state}" for state in _states(shards))
    rows = f"{sum(shard.rows for shard in shards)} of {sum(shard.of for shard in shards)} rows"
    others = (
        f"; {left_out} others are asked for by no target (--all shows them)" if left_out else ""
    )
    return f"{len(shards)} decode jobs: {states}; {rows}{others}"


def _states(shards: "list[ShardStatus]") -> "list[State]":
    from adafuse.workflow.status import State

    found = {shard.state for shard in shards}
    return [state for state in get_args(State) if state in found]


def _table(shards: "list[ShardStatus]") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    from adafuse.workflow.status import by_run

    states = _states(shards)
    table = Table(title="Shards by state, and rows")
    for name in ("benchmark", "run"):
        table.add_column(name, overflow="fold")
    for state in (*states, "rows"):
        table.add_column(state, justify="right", no_wrap=True)
    for group in by_run(shards):
        counts = Counter(shard.state for shard in group)
        rows = f"{sum(shard.rows for shard in group)}/{sum(shard.of for shard in group)}"
        cells = [str(counts[state] or "") for state in states]
        table.add_row(escape(group[0].benchmark), escape(group[0].run), *cells, rows)
    return table


def _sentence(shard: "ShardStatus") -> str:
    name = f"{shard.benchmark}/{shard.run}/{shard.shard}"
    rows = f"{shard.rows} of {shard.of} rows"
    detail = f", {shard.detail}" if shard.detail else ""
    return f"{shard.state}: {name}: {rows}{detail}{f' ({shard.log})' if shard.log else ''}"
