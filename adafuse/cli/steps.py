"""`adafuse step`: what the rules of the workflow run, and what makes its summary."""

import inspect
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adafuse.errors import UserError
from adafuse.storage.files import PACKAGE
from adafuse.version import CODE_VERSION

if TYPE_CHECKING:
    from adafuse.config.config import Config
    from adafuse.report.main_table import Cell
    from adafuse.workflow.plan import Plan
    from adafuse.workflow.steps import Job

logger = logging.getLogger(__name__)
app = typer.Typer(help="Run one step of the workflow.", no_args_is_help=True)

STAMPED = "%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S%z"
"""The form of lines and of their times, which on a node may be of another time zone."""
KILLED = 137
"""The exit status of a job that was sent SIGKILL, as a shell reports it."""


@app.callback()
def _begin() -> None:
    """Refuse what was planned by another AdaFuse: results would be marked with its digests."""
    planned_by = os.environ.get("ADAFUSE_PLANNED_BY", CODE_VERSION)
    if planned_by != CODE_VERSION:
        raise UserError(
            f"this job runs AdaFuse {CODE_VERSION} ({PACKAGE}), but Snakemake planned with"
            f" {planned_by}; install the same one in the environment or container of the jobs"
        )
    # A rule's log says when what happened, whatever the command line above has set up.
    form, times = STAMPED
    logging.basicConfig(force=True, stream=sys.stderr, format=form, datefmt=times)
    logging.getLogger("adafuse").setLevel(logging.INFO)


def _read(config: Path) -> "Config":
    from adafuse.config.reading import read_config
    from adafuse.models.files import DIGESTS
    from adafuse.workflow.layout import ResultsLayout

    check_config(config)
    settings = read_config(config)
    DIGESTS.load(ResultsLayout(settings.results).model_files)
    return settings


def check_config(path: Path) -> None:
    """Refuse another configuration than that which Snakemake planned with, if it says so."""
    from adafuse.workflow.layout import config_variable, file_sha256

    planned = os.environ.get(config_variable(path))
    if planned is not None and file_sha256(path) != planned:
        raise UserError(
            f"{str(path)!r} is not the configuration that Snakemake planned with: something kept"
            " the workflow from storing it, or it was changed since; run again"
        )


def step(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function the command of the step that it is named after.

    It gets the plan, the step's outputs by name, and what the keyword-only parameters ask for: the
    values of the wildcards, and further options of the step.
    """
    given = inspect.signature(function).parameters
    config = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, annotation=Path)
    asked = [config, *(each for each in given.values() if each.kind is each.KEYWORD_ONLY)]
    options = [each.replace(default=typer.Option(...)) for each in asked]
    if "digest" not in given:
        digest = config.replace(name="digest", annotation=str | None)
        options.append(digest.replace(default=typer.Option(None)))

    def command(config: Path, digest: str | None = None, **values: Any) -> None:
        """Run the step on what it reads, and stamp what it writes with the digest of the plan."""
        from adafuse.workflow.plan import Plan
        from adafuse.workflow.stamps import intact, write_stamp

        plan = Plan(_read(config))
        job = plan.job(function.__name__, values)
        if "digest" in given:
            values["digest"] = digest
        plan.check_code(job)
        for path in plan.inputs(job):
            intact(path)
        if digest is not None:
            _check_planned(plan, job, digest)
        function(plan, **plan.named_outputs(job), **values)
        if digest is not None:
            for path in plan.outputs(job):
                write_stamp(path, digest)

    command.__doc__ = function.__doc__
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    command.__annotations__ = {}
    app.command(function.__name__.replace("_", "-"))(command)
    return function


def _check_planned(plan: "Plan", job: "Job", digest: str) -> None:
    if job.step in ("prepare", "shard", "datasets") and plan.key(job) != digest:
        which = repr(job.values[0]) if job.values else "a benchmark"
        raise UserError(f"the files of {which} changed meanwhile; run again")


@step
def prepare(plan: "Plan", rows: Path, *, benchmark: str) -> None:
    """Read a benchmark and put every question into its prompt template."""
    from adafuse.benchmarks.shards import write_prepared

    prepared = plan.prepared(benchmark)
    write_prepared(rows, prepared.rows)
    shots = sum(row.shot for row in prepared.rows)
    counts = (len(prepared.rows), prepared.duplicates, shots)
    logger.info("%d rows, %d with a repeated id, %d few-shot examples of the prompt", *counts)


@step
def shard(plan: "Plan", rows: Path, *, benchmark: str, shard: int) -> None:
    """Prepare the rows of one shard of a benchmark."""
    from adafuse.benchmarks.shards import write_shard

    chosen = plan.shard(benchmark, shard)
    write_shard(rows, chosen)
    logger.info("%d rows", len(chosen))


@step
def fit(plan: "Plan", gate: Path, *, benchmark: str, run: str) -> None:
    """Fit the gate of a run on development rows; an interrupted job goes on where it was."""
    from adafuse.benchmarks.shards import read_prepared
    from adafuse.workflow.decode import fit_gate
    from adafuse.workflow.jobs import fit_job
    from adafuse.workflow.serving import on_servers

    rows = read_prepared(plan.layout.rows(benchmark))
    scorer = plan.config.benchmarks[benchmark].scorer
    with on_servers(plan.config, fit_job(plan.config, benchmark, run)) as job:
        fitted = fit_gate(job, rows, scorer, gate).fitted
    message = "%d rounds of %d rows, penalty %s, gain by penalty %s"
    logger.info(message, fitted.rounds, fitted.rows, fitted.penalty, fitted.gain)


@step
def decode(plan: "Plan", trace: Path, *, benchmark: str, run: str, shard: int, digest: str) -> None:
    """Decode a shard with a run; an interrupted job goes on where it was."""
    from adafuse.workflow.together import decode_together

    decode_together(plan, (benchmark, run, str(shard)), digest)


@app.command()
def server(
    config: Annotated[Path, typer.Option()],
    model: Annotated[str, typer.Option()],
    digest: Annotated[str | None, typer.Option()] = None,
    srun: Annotated[str, typer.Option(help="What starts it on a node of a Slurm cluster.")] = "",
) -> None:
    """Start the server of a model, and end when it is ready; it runs until no job needs it."""
    from adafuse.storage.journal import writer
    from adafuse.workflow.layout import ResultsLayout
    from adafuse.workflow.serving import executor, launch, start

    settings = _read(config)
    file = ResultsLayout(settings.results).server(model)
    words = shlex.split(srun) if executor() == "slurm" else None
    start(launch(settings, model, file, words), file, lambda: writer(config) is not None)


@step
def merge(plan: "Plan", trace: Path, *, benchmark: str, run: str) -> None:
    """Join the shards of a run, after checking that each belongs to the plan."""
    from adafuse.workflow.decode import merge_shards

    shards = plan.shards(benchmark)
    files = [plan.layout.shard_trace(benchmark, run, shard) for shard in shards]
    rows = [plan.layout.shard_rows(benchmark, shard) for shard in shards]
    merge_shards(files, plan.digests(benchmark, run), rows, trace)
    logger.info("%d shards", len(files))


@step
def choose(plan: "Plan", trace: Path, *, benchmark: str, run: str) -> None:
    """Make the trace of a run that chooses between other runs."""
    from adafuse.workflow.choose import choose_rows

    logger.info("rows from %s", choose_rows(plan.config, benchmark, run, trace))


@step
def score(
    plan: "Plan", score: Path, outcomes: Path, *, protocol: str, benchmark: str, run: str
) -> None:
    """Score a run on a benchmark under one protocol, with a row of outcomes per example."""
    from adafuse.metrics.score import score_trace, write_outcomes, write_score

    task, layout = plan.config.benchmarks[benchmark], plan.layout
    if task.bertscore is not None:
        from adafuse.models.memory import use_threads

        use_threads(1)  # Snakemake runs as many steps at a time as there are cores
    result = score_trace(
        layout.rows(benchmark),
        layout.trace(benchmark, run),
        task.scorer,
        protocol,
        benchmark=benchmark,
        run=run,
        within_budget=task.within_budget,
        bertscore=task.bertscore,
    )
    about = {"scorer": task.scorer, "score": asdict(result.score)}
    write_outcomes(outcomes, result.outcomes, about)
    write_score(score, result.score)
    main = result.score.main
    logger.info("%.2f%s, n = %d", main.value, main.ends(2, form=" [{}, {}]"), result.score.n)


@step
def compare(
    plan: "Plan", csv: Path, markdown: Path, metrics_csv: Path, metrics_markdown: Path
) -> None:
    """Build the main table from scores, with one of all metrics; protocols are never mixed."""
    from adafuse.report.main_table import (
        metrics_table,
        score_table,
        stored_tables,
        tables_markdown,
    )
    from adafuse.report.tables import write_table

    strict, published, paper = stored_tables(plan.config)
    write_table(score_table(strict, tables_markdown(strict, published, paper)), csv, markdown)
    both = [table for table in (strict, published) if table is not None]
    write_table(metrics_table(both), metrics_csv, metrics_markdown)
    logger.info("%d runs on %d benchmarks", len(strict.rows), len(strict.columns))


@step
def compare_runs(
    plan: "Plan", csv: Path, markdown: Path, gain_csv: Path, gain_markdown: Path
) -> None:
    """Test every ensemble against its members and the best baseline; say what there is to gain."""
    from adafuse.metrics import compare
    from adafuse.metrics.cofailure import co_failures
    from adafuse.metrics.score import read_scored
    from adafuse.report.tables import comparison_table, gain_table, write_table

    config, main = plan.config, plan.config.main
    runs = config.compared(config.main_runs)
    cells = product(config.protocols, config.main_benchmarks, config.main_runs)
    found = [read_scored(plan.layout.score(*cell)) for cell in cells]
    comparisons = compare.compare_runs(runs, found, main.study, main.margin)
    missing = compare.models_without_single(runs)
    write_table(comparison_table(comparisons, missing, main.study), csv, markdown)
    graded = {scored.score.benchmark: scored.metric for scored in found}
    write_table(gain_table(co_failures(runs, found), graded), gain_csv, gain_markdown)
    logger.info("%d comparisons", len(comparisons))


@step
def audit(plan: "Plan", csv: Path, markdown: Path, published: Path) -> None:
    """Count what only the published protocol accepts, and write its main table."""
    from adafuse.metrics.scorer import PUBLISHED
    from adafuse.report.main_table import score_table, stored_table
    from adafuse.report.tables import audit_table, stored_audits, write_table

    audits = stored_audits(plan.config)
    write_table(audit_table(audits), csv, markdown)
    write_table(score_table(stored_table(plan.config, PUBLISHED)), published)
    logger.info("%d accepted by the published scorer only", sum(len(a.accepted) for a in audits))


@step
def certificates(plan: "Plan", csv: Path, markdown: Path) -> None:
    """Show what certified runs were chosen by."""
    from adafuse.report.certificates import certificates_table, stored_certificates
    from adafuse.report.tables import write_table

    found = stored_certificates(plan.config)
    write_table(certificates_table(found), csv, markdown)
    logger.info("%d of %d certified", sum(each["certified"] for *_, each in found), len(found))


@step
def words_per_round(plan: "Plan", csv: Path) -> None:
    """Count how many words the rounds of each run committed."""
    from adafuse.metrics import measures
    from adafuse.report.tables import words_table, write_table
    from adafuse.workflow.steps import Job

    traces = plan.inputs(Job.of("words_per_round"))
    shares = [share for trace in traces for share in measures.words_per_round(trace)]
    write_table(words_table(shares), csv)
    logger.info("%d traces", len(traces))


@step
def datasets(plan: "Plan", csv: Path, markdown: Path) -> None:
    """Describe the benchmarks: rows, lengths, repetitions, beside the paper's figures."""
    from adafuse.report.tables import datasets_table, write_table
    from adafuse.workflow.benchmarks import describe_benchmarks

    lines = describe_benchmarks(plan.config)
    write_table(datasets_table(lines), csv, markdown)
    logger.info("%d benchmarks", len(lines))


@step
def case_study(plan: "Plan", markdown: Path) -> None:
    """Show rows on which ensembles stand out from their models, with all answers and the rounds."""
    from adafuse.report.case_study import case_study_page
    from adafuse.storage.files import write_text

    page, count = case_study_page(plan.config)
    write_text(markdown, page)
    logger.info("%d rows", count)


@step
def experiment(plan: "Plan", svg: Path, csv: Path, png: Path, *, experiment: str) -> None:
    """Turn results into the numbers and the figure of an experiment."""
    from adafuse.report.charts import rendered
    from adafuse.report.experiments import find_experiment
    from adafuse.report.figures import measured
    from adafuse.report.tables import Table, write_table
    from adafuse.storage.files import write_bytes

    points, figure = measured(find_experiment(plan.config, experiment))
    write_table(Table(points.columns, points.rows()), csv)
    write_bytes(svg, rendered(figure, "svg"))
    write_bytes(png, rendered(figure, "png"))
    logger.info("%d points", len(points))


@step
def examples(plan: "Plan", folder: Path, *, benchmark: str) -> None:
    """Write the trace explorer's data of a benchmark, `data/BENCHMARK` of a report."""
    from adafuse.report.pages import write_examples
    from adafuse.report.stored import StoredResults

    results = StoredResults.asked(plan.config)
    write_examples(results, benchmark, plan.layout.report)
    logger.info("%d runs", len(results.runs[benchmark]))


@step
def report(plan: "Plan", index: Path, explorer: Path, failures: Path) -> None:
    """Write the report's pages into a folder; the examples beside them are there already."""
    from adafuse.report.pages import write_pages
    from adafuse.report.stored import StoredResults

    write_pages(StoredResults.asked(plan.config), plan.layout.report)


@app.command()
def prefetch(
    config: Annotated[Path, typer.Option()], log: Annotated[Path | None, typer.Option()] = None
) -> None:
    """Download models and data sets of a configuration and record their commits."""
    from adafuse.models.hub import download
    from adafuse.workflow import prefetch as prefetching
    from adafuse.workflow.layout import ResultsLayout

    if log is not None:
        kept = logging.FileHandler(log, mode="w", encoding="utf-8")
        kept.setFormatter(logging.Formatter(*STAMPED))
        logging.getLogger("adafuse").addHandler(kept)
    settings = prefetching.with_commits(_read(config))
    commits = prefetching.prefetch(settings, download)
    for (path, revision), commit in commits.items():
        logger.info("%s, revision %s: commit %s", path, revision, commit)
    logger.info("%d models in %s", len(commits), ResultsLayout(settings.results).commits)


@app.command()
def fetch(source: Annotated[str, typer.Option()], out: Annotated[Path, typer.Option()]) -> None:
    """Load a dataset (a `source` section as JSON) and write its rows; planning does so once."""
    from adafuse.config.benchmarks import SourceConfig
    from adafuse.workflow import benchmarks

    logger.info("%d rows", benchmarks.fetch(SourceConfig.model_validate_json(source), out))


@app.command()
def ended(status: int) -> None:
    """Say in the log what a job with models died of, where it could not do so itself."""
    if status == KILLED:
        logger.error(
            "the job was killed (exit status %d), which mostly means too little memory: lower"
            " batch_size, set it to auto, or ask the cluster for more; what is decoded is kept",
            status,
        )
    elif status in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        logger.info("interrupted (exit status %d); what is decoded is kept", status)


@app.command()
def summary(config: Annotated[Path, typer.Argument()] = Path("config/toy.yaml")) -> None:
    """Print the main table and where every output is."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from adafuse.cli.output import warn_of_stale
    from adafuse.report.main_table import stored_table
    from adafuse.report.stored import StoredResults
    from adafuse.workflow.steps import listing

    settings = _read(config)
    table = stored_table(settings)
    if not any(column.n for column in table.columns):
        folder = str(Path(settings.results, "scores", "strict"))
        raise UserError(f"{folder!r} has no scores of this configuration; run snakemake")
    warn_of_stale(StoredResults.in_folder(settings))
    console = Console(width=None if sys.stdout.isatty() else 160, emoji=False)
    if table.note:
        console.print(f"[bold]Note:[/bold] {escape(table.note)}")
    for warning in table.warnings:
        console.print(f"[bold]Warning:[/bold] {escape(warning)}")
    grid = Table("run", "models", title="Scores (accuracies in percent), with 95 % intervals")
    for column in table.columns:
        grid.add_column(f"{escape(column.name)}\nn = {column.n}", justify="right")
    if table.averaged:
        grid.add_column("macro\naverage", justify="right")
    for row in table.rows:
        name = escape(row.run) + "\n(oracle)" * row.oracle
        grid.add_row(name, escape("\n".join(row.models)), *map(_cell, table.shown(row)))
    console.print(grid)
    files = listing(settings)
    width = max(map(len, files)) + 2
    for name, path in files.items():
        console.print(f"{name:<{width}}{escape(str(path))}", soft_wrap=True)


def _cell(cell: "Cell") -> str:
    text = "\n".join(filter(None, (cell.text, cell.interval, cell.doubts)))
    return f"[bold]{text}[/bold]" if cell.best else text
