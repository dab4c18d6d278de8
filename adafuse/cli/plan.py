"""`adafuse plan`: what a run of the workflow would take."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adafuse.cli.options import AsJson, option
from adafuse.cli.output import echo_json
from adafuse.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from adafuse.workflow.forecast import Forecast
    from adafuse.workflow.plan import Plan

MOST_REASONS = 10


def plan(
    config: Annotated[
        list[Path] | None,
        typer.Argument(help="Configurations, as for --configfile.", metavar="CONFIG"),
    ] = None,
    target: Annotated[
        list[str] | None, option("Plan for this target instead of all (repeatable).", "NAME")
    ] = None,
    profile: Annotated[str | None, option("A profile of Snakemake.", "PROFILE")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what `snakemake` would run, why, and what it takes; nothing is run.

    Hours are those of all jobs together, each times its GPUs: `low` without any
    margin, `high` as they are requested from a cluster, and `likely` by the jobs
    that have ended already, if there are any. Jobs that use no GPU have a table
    of their own. Run it in the folder in which Snakemake runs.
    """
    from adafuse.workflow.forecast import Measured, forecast
    from adafuse.workflow.snakemake import PLANS, planned_jobs

    for file in config or ():
        if not file.is_file():
            raise UserError(
                f"configuration {str(file)!r} does not exist; name files of the workflow"
            )
    files = ["--configfile", *map(str, config)] if config else []
    chosen = ["--profile", profile] if profile else ["--cores", "1"]
    jobs = planned_jobs([*files, *chosen], target or [])
    measured = {id(each): Measured(each) for each in PLANS}
    forecasts = [
        forecast(each.plan, each.job, each.resources, measured[id(each.plan)])
        for each in jobs
        if each.job.step in ("decode", "fit")
    ]
    counts = Counter(each.job.step for each in jobs)
    models = [entry for each in PLANS for entry in _models(each, jobs)]
    missing = [reason for each in PLANS for reason in each.missing.values()]
    sizes = [size for each in measured.values() for size in each.bytes]
    rows = sum(each.rows for each in forecasts)
    disk = sum(sizes) / len(sizes) * rows / 1e6 if sizes else None
    if as_json:
        found = {"steps": counts, "decoding": [*map(asdict, forecasts)], "models": models}
        echo_json({**found, "missing": missing, "trace_mb": disk})
        return
    _print(counts, forecasts, disk)
    for model in models:
        size = f"{model['gb']:.3g} GB" if model["gb"] else "size unknown"
        typer.echo(f"model {model['path']}: {size}, {model['where']}")
    for reason in missing:
        typer.echo(f"missing: {reason}")


def _models(plan: "Plan", jobs: list[Any]) -> list[dict[str, Any]]:
    """Return the models that the jobs load, and whether these are on this machine."""
    from adafuse.models.files import local_path, weight_bytes
    from adafuse.workflow.jobs import loaded

    cells = {each.job.values[:2] for each in jobs if each.job.step in ("decode", "fit")}
    used = {
        (model.path, model.revision): model
        for cell in sorted(cells)
        if cell[1] in plan.config.decoded_runs
        for model in loaded(plan.decode_job(*cell))
    }
    absent = "not on this machine: `snakemake prefetch` downloads it"
    return [
        {
            "path": path,
            "revision": revision,
            "gb": None if size is None else size / 1e9,
            "where": absent if local_path(path, revision) is None else "on this machine",
        }
        for (path, revision), model in used.items()
        for size in [weight_bytes(path, revision, model.dtype, model.quantization)]
    ]


def _print(counts: Counter[str], forecasts: "list[Forecast]", disk: float | None) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(soft_wrap=True)
    if not counts:
        console.print("nothing to run: all that the targets need is up to date")
        return
    steps = ", ".join(f"{count} {step}" for step, count in counts.most_common())
    console.print(f"{counts.total()} jobs to run: {steps}", highlight=False)
    if not forecasts:
        console.print("nothing is decoded")
        return
    for title, some in (
        ("GPU hours", [each for each in forecasts if each.gpus]),
        ("Hours of jobs without a GPU", [each for each in forecasts if not each.gpus]),
    ):
        if some:
            console.print(_table(title, some))
    longest = max(each.high for each in forecasts)
    memory, cards = (max(getattr(each, name) for each in forecasts) for name in ("mem_mb", "gpus"))
    requested = f"a job requests at most {longest:.1f} hours, {memory / 1000:,.0f} GB of memory"
    console.print(f"{requested} and {cards} GPUs", highlight=False)
    whys = Counter(each.why.split("; ")[0] for each in forecasts)
    for why, count in whys.most_common(MOST_REASONS):
        console.print(escape(f"{count} of these jobs: {why}"), highlight=False)
    if len(whys) > MOST_REASONS:
        console.print(f"{len(whys) - MOST_REASONS} further reasons: --json has all")
    traces = "unknown before a job has ended" if disk is None else f"about {disk:,.1f} MB"
    console.print(f"disk for traces: {traces}", highlight=False)


def _table(title: str, forecasts: "list[Forecast]") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title)
    table.add_column("benchmark", overflow="fold")
    for name in ("jobs", "rows", "low", "likely", "high"):
        table.add_column(name, justify="right", no_wrap=True)
    benchmarks = [*dict.fromkeys(each.benchmark for each in forecasts)]
    for name in benchmarks:
        table.add_row(escape(name), *_cells([f for f in forecasts if f.benchmark == name]))
    if len(benchmarks) > 1:
        table.add_section()
        table.add_row("all", *_cells(forecasts))
    return table


def _cells(forecasts: "list[Forecast]") -> tuple[str, ...]:
    """Return the figures of some jobs: their hours times their GPUs, if they have some."""
    hours = [[each.low, each.likely, each.high] for each in forecasts]
    cards = [each.gpus or 1 for each in forecasts]
    return (
        f"{len(forecasts):,}",
        f"{sum(each.rows for each in forecasts):,}",
        *(_hours(of, cards) for of in zip(*hours, strict=True)),
    )


def _hours(hours: Sequence[float | None], cards: Sequence[int]) -> str:
    if None in hours:
        return "-"
    total = sum((each or 0) * count for each, count in zip(hours, cards, strict=True))
    return f"{total:,.1f}" if total >= 0.1 else f"{total:.3f}"
