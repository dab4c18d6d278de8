"""`adafuse status`: how far a results folder is."""

from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from adafuse.cli.errors import FAILED, UNFINISHED
from adafuse.cli.options import AsJson, option, results_config
from adafuse.cli.output import counted, echo_json

if TYPE_CHECKING:
    from adafuse.workflow.status import Progress, ShardStatus


_RESULTS = "A results folder; by default that of --config, or results."
_Results = Annotated[Path | None, typer.Argument(help=_RESULTS, metavar="RESULTS")]


def status(
    results: _Results = None,
    config: Annotated[
        Path | None, option("Compare with this configuration instead of the last one run.", "FILE")
    ] = None,
    whole: Annotated[bool, option("Include runs that no target needs.", "", None, "--all")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which decode jobs are done, running, stopped, failed, stale or waiting.

    Counts the jobs that plain `snakemake` runs for the configuration's
    `targets`, says how fast they are, how long decoding still takes (by pilots
    and jobs that have ended) and how many GPU hours it took so far, and lists
    failed rows, the servers that the workflow starts, and files that this
    configuration does not make. Run it in the folder in which Snakemake runs.
    Exit status: 0 all decoded, 1 a job or a server failed, 3 not finished.
    """
    from adafuse.workflow.plan import Plan
    from adafuse.workflow.prefetch import with_commits
    from adafuse.workflow.snakemake import failed_jobs
    from adafuse.workflow.status import (
        decoded_with,
        failed_steps,
        progress,
        server_statuses,
        shard_status,
    )

    # Not checked: what is somebody else's to write can be looked at.
    plan = Plan(with_commits(results_config(results, config)))
    cells, jobs = plan.all_cells(), failed_jobs()
    shards = [
        shard_status(plan, jobs, *cell, shard)
        for cell in (cells if whole else plan.requested_cells())
        for shard in plan.shards(cell[0])
    ]
    steps, orphans = failed_steps(plan, jobs), list(map(str, plan.orphans()))
    versions, servers = decoded_with(plan), server_statuses(plan, jobs, shards)
    now, outdated = progress(plan, shards), [*map(str, plan.outdated())]
    if as_json:
        others = {"failed_steps": steps, "orphans": orphans, "outdated": outdated, "progress": now}
        echo_json({"shards": shards, "servers": servers, "versions": versions, **others})
    else:
        _print(shards, steps, sum(len(plan.shards(name)) for name, _ in cells) - len(shards))
        typer.echo(_pace(now, {shard.state for shard in shards} <= {"done"}))
        for server in servers:
            said = "".join(f", {part}" for part in (server.url, server.detail) if part)
            log = f" ({server.log})" if server.log else ""
            typer.echo(f"server {server.state}: {server.model}{said}{log}")
        if len(versions) > 1:
            typer.echo("decoded with several versions, which reruns nothing:")
            for names, count in versions.items():
                typer.echo(f"  {count} shards with {names}")
        lines = [f"outdated: {path}: of an earlier start; run snakemake" for path in outdated]
        lines += [f"orphan: {path}: not made by this configuration" for path in orphans]
        typer.echo("".join(f"{line}\n" for line in lines), nl=False)
    states = {shard.state for shard in shards}
    if steps or "failed" in {*states, *(server.state for server in servers)}:
        raise typer.Exit(FAILED)
    raise typer.Exit(0 if states <= {"done"} else UNFINISHED)


def _print(shards: "list[ShardStatus]", steps: list[dict[str, str]], left_out: int) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from adafuse.workflow.status import State

    console = Console(soft_wrap=True, emoji=False)
    counts = Counter(shard.state for shard in shards)
    states = [state for state in get_args(State) if state in counts]
    total = ", ".join(f"{counts[state]} {state}" for state in states)
    others = f"; {left_out} others are not needed by any target (--all shows them)"
    jobs = f"{len(shards)} decode jobs: {total}; {_rows(shards, ' of ')} rows"
    console.print(jobs + others * bool(left_out), highlight=False)

    table = Table(title="Shards by state, and rows")
    for name in ("benchmark", "run"):
        table.add_column(name, overflow="fold")
    for state in (*states, "rows"):
        table.add_column(state, justify="right", no_wrap=True)
    for (benchmark, run), group in groupby(shards, lambda shard: (shard.benchmark, shard.run)):
        of_run = list(group)
        counts = Counter(shard.state for shard in of_run)
        cells = [str(counts[state] or "") for state in states]
        table.add_row(escape(benchmark), escape(run), *cells, _rows(of_run, "/"))
    console.print(table)
    for shard in shards:
        if shard.detail or shard.state not in ("done", "waiting"):
            console.print(escape(_sentence(shard)))
    for step in steps:
        console.print(escape(f"failed: {step['log']}: {step['error']}"))


def _pace(now: "Progress", done: bool) -> str:
    running = f"{counted(now.running, 'job')} with {now.rows_per_minute:,.1f} rows a minute"
    by = "by these jobs" if now.running else "by one job at a time"
    left = "unknown" if now.hours_left is None else f"about {now.hours_left:,.2f} hours, {by}"
    parts = [f"running: {running}"] * (now.running > 0) + [f"time left: {left}"] * (not done)
    return "; ".join([*parts, f"GPU hours so far: {now.gpu_hours:,.2f}"])


def _rows(shards: "list[ShardStatus]", of: str) -> str:
    return f"{sum(shard.rows for shard in shards)}{of}{sum(shard.of for shard in shards)}"


def _sentence(shard: "ShardStatus") -> str:
    name = f"{shard.benchmark}/{shard.run}/{shard.shard}"
    detail = f", {shard.detail}" if shard.detail else ""
    log = f" ({shard.log})" if shard.log else ""
    return f"{shard.state}: {name}: {shard.rows} of {shard.of} rows{detail}{log}"
