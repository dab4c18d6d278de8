"""`adafuse plan`: what a run of the workflow would take."""

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adafuse.cli.options import AsJson, option
from adafuse.cli.output import echo_json
from adafuse.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from adafuse.models.spec import ModelSpec
    from adafuse.workflow.forecast import Forecast
    from adafuse.workflow.pilot import Pilot
    from adafuse.workflow.plan import Plan
    from adafuse.workflow.snakemake import PlannedJob

MOST_REASONS = 10
MOST_NAMES = 4
_SNAKEFILES = [*product(("", "workflow"), ("Snakefile", "snakefile"))]


def plan(
    config: Annotated[
        list[Path] | None,
        typer.Argument(help="Configurations, as for --configfile.", metavar="CONFIG"),
    ] = None,
    target: Annotated[
        list[str] | None, option("Plan for this target instead of all (repeatable).", "NAME")
    ] = None,
    profile: Annotated[str | None, option("A profile of Snakemake.", "PROFILE")] = None,
    pilot: Annotated[
        int | None,
        option("Decode so many rows of each benchmark and run here, to measure.", "ROWS", min=1),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what `snakemake` would run, why, and what it takes.

    Hours are those of all jobs together, each times its GPUs: `low` without any
    margin, `high` as they are requested from a cluster, and `likely` by the jobs
    that have ended already and by pilots, if there are any. Jobs that use no GPU
    have a table of their own. Nothing is run, except with --pilot: 20 rows of
    each benchmark and run are enough, or twice `batch_size`. Jobs take these
    rows over. Run it in the folder in which Snakemake runs, and a pilot on a
    machine like those of the jobs.
    """
    from adafuse.workflow.forecast import Measured, forecast
    from adafuse.workflow.snakemake import PLANS, planned_jobs

    _check_files([*map(str, config or ())], profile)
    files = ["--configfile", *map(str, config)] if config else []
    chosen = ["--profile", profile] if profile else ["--cores", "1"]
    jobs = planned_jobs([*files, *chosen], target or [])
    left_out = {} if pilot is None else _take_pilots(jobs, pilot)
    measured = {id(each): Measured(each) for each in PLANS}
    forecasts = [
        forecast(each.plan, each.job, each.resources, measured[id(each.plan)])
        for each in jobs
        if each.job.step in ("decode", "fit")
    ]
    counts = Counter(each.job.step for each in jobs)
    models = [entry for each in PLANS for entry in _models(each, jobs)]
    datasets = [entry for each in PLANS for entry in _datasets(each)]
    missing = [reason for each in PLANS for reason in each.missing.values()]
    pilots = dict(pair for each in measured.values() for pair in each.pilots.items())
    if as_json:
        found = {"steps": counts, "decoding": [*map(asdict, forecasts)]}
        found |= {"models": models, "datasets": datasets, "missing": missing}
        measures = [{"benchmark": b, "run": r, **asdict(p)} for (b, r), p in pilots.items()]
        echo_json({**found, "pilots": measures, "no_pilot": left_out})
        return
    _print(counts, forecasts, {name for each in PLANS for name in each.missing})
    asked = dict.fromkeys((each.benchmark, each.run) for each in forecasts)
    _print_pilots([pilots[cell] for cell in asked if cell in pilots], left_out)
    lines = [_told("model", each) for each in models] + [_told("dataset", d) for d in datasets]
    first = [reason for each in PLANS for reason in _first_reasons(each)]
    for line in [*lines, *(f"missing: {reason}" for reason in first)]:
        typer.echo(line)


def _check_files(config: Sequence[str], profile: str | None) -> None:
    from adafuse.config.reading import no_file
    from adafuse.workflow.snakemake import check_readable

    if wrong := no_file("configuration", config):
        raise UserError(f"{wrong}; name files of the workflow")
    check_readable(config)
    found = any(Path(place, name).is_file() for place, name in _SNAKEFILES)
    if not found and profile is None:  # which may name another one
        raise UserError(
            "there is no Snakefile here; run it in a clone of the project, or in a folder that"
            " `adafuse init` wrote"
        )


def _first_reasons(plan: "Plan") -> list[str]:
    """Return why something is missing, once for the benchmarks that read the same dataset."""
    found: dict[str, str] = {}
    for name, reason in plan.missing.items():
        task = plan.config.benchmarks.get(name)
        found.setdefault((task.source.dataset if task else None) or name, reason)
    return [*dict.fromkeys(found.values())]


def _take_pilots(jobs: "list[PlannedJob]", size: int) -> dict[str, list[str]]:
    """Take the pilots of what was not measured yet; return those that cannot be, by the reason."""
    from tqdm import tqdm

    from adafuse.workflow.forecast import Measured
    from adafuse.workflow.pilot import take_pilots
    from adafuse.workflow.snakemake import PLANS

    left_out: dict[str, list[str]] = {}
    for plan in PLANS:
        measured = Measured(plan)
        asked = {
            (each.job.values[0], each.job.values[1]): int(each.resources.get("gpu", 0))
            for each in jobs
            if each.plan is plan and each.job.step == "decode"
        }
        unknown = [cell for cell, cards in asked.items() if not measured.knows(cell, cards)]
        with tqdm(total=len(unknown), unit="pilot", disable=None) as bar:
            for cell, found in take_pilots(plan, unknown, size):
                bar.update(cell in unknown)
                if isinstance(found, UserError):
                    left_out.setdefault(str(found), []).append("/".join(cell))
    return left_out


def _print_pilots(pilots: "list[Pilot]", left_out: dict[str, list[str]]) -> None:
    for reason, cells in left_out.items():
        more = f" and {len(cells) - MOST_NAMES} more" * (len(cells) > MOST_NAMES)
        typer.echo(f"no pilot of {', '.join(cells[:MOST_NAMES])}{more}: {reason}")
    if not pilots:
        return
    places = {", ".join(each.gpus) or f"a CPU of {each.host}" for each in pilots}
    where = " and on ".join(sorted(places))
    memory, card = (max(getattr(p, name) for p in pilots) for name in ("memory_mb", "gpu_mb"))
    used = f"{memory / 1000:.1f} GB of memory" + f", {card / 1000:.1f} GB of a GPU" * (card > 0)
    rows = sum(len(each.digests) for each in pilots)
    kinds = f"{rows:,} rows of {len(pilots)} pairs of a benchmark and a run"
    typer.echo(f"pilots: {kinds}, on {where}; they used at most {used}")
    if few := sum(not each.full for each in pilots):
        typer.echo(f"likely is too high for {few} of them: give --pilot twice the batch size")


def _models(plan: "Plan", jobs: list[Any]) -> list[dict[str, Any]]:
    """Return the models that the jobs load, and whether these are on this machine."""
    from adafuse.models.files import weight_bytes
    from adafuse.workflow.jobs import loaded

    cells = {each.job.values[:2] for each in jobs if each.job.step in ("decode", "fit")}
    used = {
        (model.path, model.revision): model
        for cell in sorted(cells)
        if cell[1] in plan.config.decoded_runs
        for model in loaded(plan.decode_job(*cell))
    }
    return [
        {
            "path": path,
            "revision": revision,
            "gb": _gb(size),
            **_standing(model),
        }
        for (path, revision), model in used.items()
        for size in [weight_bytes(path, revision, model.dtype, model.quantization)]
    ]


def _standing(model: "ModelSpec") -> dict[str, Any]:
    """Return whether a model is on this machine, and what downloading it takes if it is not."""
    from adafuse.models.files import local_path
    from adafuse.models.hub import model_on_hub

    if local_path(model.path, model.revision) is not None:
        return {"where": "on this machine"}
    asked = model_on_hub(model)
    absent = "not on this machine: `snakemake prefetch` downloads it"
    return {"where": absent, "access": asked.access, "download_gb": _gb(asked.bytes)}


def _datasets(plan: "Plan") -> list[dict[str, Any]]:
    """Return the hub datasets of the configuration: which are fetched, and how others are had."""
    from adafuse.models.hub import dataset_on_hub

    found: dict[str, dict[str, Any]] = {}
    for benchmark, task in plan.config.benchmarks.items():
        if (name := task.source.dataset) is None or Path(name).is_dir():
            continue
        if benchmark not in plan.missing:
            found[name] = {"path": name, "where": "on this machine"}
        elif name not in found:
            asked = dataset_on_hub(name, task.source.revision)
            size = {"access": asked.access, "download_gb": _gb(asked.bytes)}
            found[name] = {"path": name, "where": "not on this machine", **size}
    return [*found.values()]


def _gb(size: int | None) -> float | None:
    return None if size is None else size / 1e9


def _told(kind: str, each: dict[str, Any]) -> str:
    """Say in a line where a model or dataset is, how large, and who may download it."""
    size = f", {each['gb']:.3g} GB in memory" if each.get("gb") else ""
    if (access := each.get("access")) is not None:
        known = each["download_gb"]
        size = f"; download: {'size ' * (known is None)}"
        size += access if known is None else f"{known:.3g} GB, {access}"
    return f"{kind} {each['path']}: {each['where']}{size}"


def _print(
    counts: Counter[str], forecasts: "list[Forecast]", missing: Set[str] = frozenset()
) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(soft_wrap=True, emoji=False)
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
            console.print(_table(title, some, missing))
    if absent := sum(each.benchmark in missing for each in forecasts):
        told = f"{absent} jobs are of benchmarks whose rows are missing, so their hours are unknown"
        console.print(told, highlight=False)
    memory, cards = (max(getattr(each, name) for each in forecasts) for name in ("mem_mb", "gpus"))
    known = [each.high for each in forecasts if each.benchmark not in missing]
    most = f"{max(known):.1f} hours, " if len(known) == len(forecasts) else ""
    requested = f"a job requests at most {most}{memory / 1000:,.0f} GB of memory"
    likely = max((each.likely for each in forecasts if each.likely is not None), default=None)
    longest = "" if likely is None else f"; the longest likely takes {_hours([likely], [1])} hours"
    console.print(f"{requested} and {cards} GPUs{longest}", highlight=False)
    whys = Counter(each.why.split("; ")[0] for each in forecasts)
    for why, count in whys.most_common(MOST_REASONS):
        console.print(escape(f"{count} of these jobs: {why}"), highlight=False)
    if len(whys) > MOST_REASONS:
        console.print(f"{len(whys) - MOST_REASONS} further reasons: --json has all")
    sizes = [each.trace_mb for each in forecasts if each.trace_mb is not None]
    disk = f"about {2 * sum(sizes):,.1f} MB" if sizes else "unknown before a pilot or a job"
    console.print(f"disk for traces, with merged ones: {disk}", highlight=False)


def _table(title: str, forecasts: "list[Forecast]", missing: Set[str]) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title)
    table.add_column("benchmark", overflow="fold")
    for name in ("jobs", "rows", "low", "likely", "high"):
        table.add_column(name, justify="right", no_wrap=True)
    benchmarks = [*dict.fromkeys(each.benchmark for each in forecasts)]
    for name in benchmarks:
        jobs, *figures = _cells([f for f in forecasts if f.benchmark == name])
        table.add_row(escape(name), jobs, *(["-"] * 4 if name in missing else figures))
    if len(benchmarks) > 1:
        table.add_section()
        jobs, *figures = _cells(forecasts)
        table.add_row("all", jobs, *(["-"] * 4 if missing & {*benchmarks} else figures))
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
