"""`adafuse step`: what the rules of the workflow run, and what makes its summary."""

import inspect
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adafuse.errors import UserError
from adafuse.storage.files import PACKAGE
from adafuse.version import CODE_VERSION

if TYPE_CHECKING:
    from adafuse.config.config import Config
    from adafuse.report.main_table import Cell

logger = logging.getLogger(__name__)
app = typer.Typer(help="Run one step of the workflow.", no_args_is_help=True)

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
    logging.basicConfig(
        force=True, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("adafuse").setLevel(logging.INFO)


def _read(config: str) -> "Config":
    from adafuse.config.reading import read_config
    from adafuse.models.files import DIGESTS
    from adafuse.workflow.layout import ResultsLayout

    check_config(Path(config))
    settings = read_config(Path(config))
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


Input = Annotated[Path, "input"]
"""A file that a step reads, refused if it is not what the workflow wrote there."""
Inputs = Annotated[list[Path], "input"]
OptionalInput = Annotated[Path | None, "input"]
OptionalInputs = Annotated[list[Path] | None, "input"]

Output = Annotated[Path, "output"]
"""A file or folder that a step writes, stamped with the digest of what it is made from."""
OptionalOutput = Annotated[Path | None, "output"]


def step(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command: keyword-only parameters are options, the others arguments.

    A parameter of type `Config` is given as the path of a configuration. With outputs there is an
    option `--digest`, that of the plan, without which nothing is stamped.
    """
    given = inspect.signature(function).parameters
    inputs, outputs = _marked(given, "input"), _marked(given, "output")
    parameters = list(map(_command_parameter, given.values()))
    if adds_digest := bool(outputs) and "digest" not in given:
        option = inspect.Parameter("digest", inspect.Parameter.KEYWORD_ONLY)
        parameters.append(option.replace(annotation=str | None, default=typer.Option(None)))

    def command(**values: Any) -> None:
        from adafuse.workflow.stamps import check_content, write_stamp

        digest = values.pop("digest", None) if adds_digest else values.get("digest")
        for path in _paths(values, inputs):
            check_content(path)
        written = _paths(values, outputs)
        function(**values)
        if digest is not None:
            for path in written:
                write_stamp(path, digest)

    command.__doc__ = function.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {}
    app.command(function.__name__.replace("_", "-"))(command)
    return function


def _marked(parameters: Mapping[str, inspect.Parameter], kind: str) -> list[str]:
    marks = {name: getattr(p.annotation, "__metadata__", ()) for name, p in parameters.items()}
    return [name for name, found in marks.items() if kind in found]


def _paths(values: Mapping[str, Any], names: Sequence[str]) -> list[Path]:
    given = [values[name] for name in names if values[name] is not None]
    return [path for value in given for path in (value if isinstance(value, list) else [value])]


def _command_parameter(parameter: inspect.Parameter) -> inspect.Parameter:
    info = typer.Option if parameter.kind is parameter.KEYWORD_ONLY else typer.Argument
    default = ... if parameter.default is parameter.empty else parameter.default
    if parameter.annotation == "Config":
        return parameter.replace(annotation=Any, default=info(default, parser=_read))
    return parameter.replace(default=info(default))


@step
def compare_runs(scores: Inputs, *, config: "Config", csv: Output, markdown: Output) -> None:
    """Test every ensemble against its members and the best baseline."""
    from adafuse.metrics import compare
    from adafuse.metrics.score import read_scored
    from adafuse.report.tables import comparison_table, write_table
    from adafuse.workflow.stamps import check_content

    for path in scores:
        check_content(path.with_suffix(".outcomes.parquet"))
    runs = {name: (config.runs[name].method, config.runs[name].models) for name in config.main_runs}
    study, found = config.main.study, [read_scored(path) for path in scores]
    comparisons = compare.compare_runs(runs, found, study)
    missing = compare.models_without_single(runs)
    write_table(comparison_table(comparisons, missing, study), csv, markdown)
    logger.info("%d comparisons", len(comparisons))


@step
def words_per_round(traces: OptionalInputs = None, *, csv: Output) -> None:
    """Count how many words the rounds of each run committed."""
    from adafuse.metrics import measures
    from adafuse.report.tables import words_table, write_table

    shares = [share for trace in traces or [] for share in measures.words_per_round(trace)]
    write_table(words_table(shares), csv)
    logger.info("%d traces", len(traces or []))


@step
def experiment(*, config: "Config", name: str, csv: Output, svg: Output, png: Output) -> None:
    """Turn results into the numbers and the figure of an experiment."""
    from adafuse.report.charts import rendered
    from adafuse.report.experiments import find_experiment
    from adafuse.report.figures import measured
    from adafuse.report.tables import Table, write_table
    from adafuse.storage.files import write_bytes

    points, figure = measured(find_experiment(config, name))
    write_table(Table(points.columns, points.rows()), csv)
    write_bytes(svg, rendered(figure, "svg"))
    write_bytes(png, rendered(figure, "png"))
    logger.info("%d points", len(points))


@step
def prefetch(*, config: "Config") -> None:
    """Download models and data sets of a configuration and record their commits."""
    from adafuse.models.hub import download
    from adafuse.workflow import prefetch as prefetching
    from adafuse.workflow.layout import ResultsLayout

    commits = prefetching.prefetch(prefetching.with_commits(config), download)
    for (path, revision), commit in commits.items():
        logger.info("%s, revision %s: commit %s", path, revision, commit)
    logger.info("%d models in %s", len(commits), ResultsLayout(config.results).commits)


@step
def examples(*, config: "Config", benchmark: str, out: Output) -> None:
    """Write the trace explorer's data of a benchmark, `data/BENCHMARK` of a report."""
    from adafuse.report.pages import write_examples
    from adafuse.report.stored import StoredResults

    results = StoredResults.main(config)
    write_examples(results, benchmark, out.parents[1])
    logger.info("%d runs", len(results.runs[benchmark]))


@step
def pages(*, config: "Config", index: Output, explorer: Output) -> None:
    """Write the report's two pages into a folder; the examples beside them are there already."""
    from adafuse.report.pages import write_pages
    from adafuse.report.stored import StoredResults

    assert index.parent == explorer.parent
    write_pages(StoredResults.main(config), index.parent)


@step
def fetch(*, source: str, out: Path) -> None:
    """Load a dataset (a `source` section as JSON) and write its rows; planning does so once."""
    from adafuse.config.benchmarks import SourceConfig
    from adafuse.workflow import benchmarks

    logger.info("%d rows", benchmarks.fetch(SourceConfig.model_validate_json(source), out))


@step
def prepare(*, config: "Config", benchmark: str, out: Output, digest: str | None = None) -> None:
    """Read a benchmark and put every question into its prompt template."""
    from adafuse.benchmarks.shards import write_prepared
    from adafuse.workflow.benchmarks import prepare_benchmark
    from adafuse.workflow.digest import prepared_digest

    prepared = prepare_benchmark(config, benchmark)
    _check_planned(digest, "prepare", prepared_digest(prepared), benchmark)
    write_prepared(out, prepared.rows)
    shots = sum(row.shot for row in prepared.rows)
    counts = (len(prepared.rows), prepared.duplicates, shots)
    logger.info("%d rows, %d with a repeated id, %d few-shot examples of the prompt", *counts)


@step
def shard(
    *, config: "Config", benchmark: str, shard: int, out: Output, digest: str | None = None
) -> None:
    """Prepare the rows of one shard of a benchmark."""
    from adafuse.benchmarks.shards import write_shard
    from adafuse.workflow.benchmarks import prepare_benchmark
    from adafuse.workflow.digest import shard_digest

    chosen = prepare_benchmark(config, benchmark).shard(shard)
    _check_planned(digest, "shard", shard_digest(chosen), benchmark)
    write_shard(out, chosen)
    logger.info("%d rows", len(chosen))


def _check_planned(digest: str | None, step: str, rows: str, benchmark: str) -> None:
    from adafuse.workflow.digest import step_key

    if digest is not None and step_key(step, rows) != digest:
        raise UserError(f"the files of benchmark {benchmark!r} changed meanwhile; run again")


@step
def decode(
    *,
    config: "Config",
    benchmark: str,
    run: str,
    shard: int,
    rows: Input,
    digest: str,
    out: Output,
    answers: OptionalInputs = None,
    gate: OptionalInput = None,
) -> None:
    """Decode a shard with a run; an interrupted job goes on where it was.

    `digest` is what the plan expects of the job, `answers` are the shard's
    traces of single models, `gate` is what the run has learned.
    """
    from functools import partial

    from adafuse.workflow.benchmarks import prepare_benchmark
    from adafuse.workflow.decode import decode_shard, ensemble_decoder
    from adafuse.workflow.digest import planned_job

    decode_shard(
        planned_job(config, benchmark, run, partial(prepare_benchmark, config)).with_gate(gate),
        shard,
        rows,
        out,
        digest=digest,
        decoder=ensemble_decoder,
        answers=answers or [],
        traces=None if config.benchmarks[benchmark].timed else out.parents[2],
        max_error_share=config.decode.max_error_share,
    )


@step
def fit(*, config: "Config", benchmark: str, run: str, rows: Input, out: Output) -> None:
    """Fit the gate of a run on development rows."""
    from adafuse.benchmarks.shards import read_prepared
    from adafuse.development.gate_file import write_gate
    from adafuse.workflow.decode import fitted_gate
    from adafuse.workflow.jobs import fit_job

    scorer = config.benchmarks[benchmark].scorer
    gate = fitted_gate(fit_job(config, benchmark, run), read_prepared(rows), scorer)
    write_gate(out, gate)
    logger.info(
        "%d rounds of %d rows, penalty %s, gain by penalty %s",
        gate.fitted.rounds,
        gate.fitted.rows,
        gate.fitted.penalty,
        gate.fitted.gain,
    )


@step
def ended(status: int) -> None:
    """Say in the log what a decode job died of, where it could not do so itself."""
    if status == KILLED:
        logger.error(
            "the job was killed (exit status %d), which mostly means too little memory: lower"
            " batch_size, set it to auto, or ask the cluster for more; what is decoded is kept",
            status,
        )


@step
def merge(shards: Inputs, *, digests: str, rows: Inputs, out: Output) -> None:
    """Join the shards of a run, after checking that each belongs to the plan."""
    from adafuse.workflow.decode import merge_shards

    merge_shards(shards, digests.split(","), rows, out)
    logger.info("%d shards", len(shards))


@step
def choose(*, config: "Config", benchmark: str, run: str, out: Output) -> None:
    """Make the trace of a run that chooses between other runs."""
    from adafuse.workflow.choose import choose_rows

    logger.info("rows from %s", choose_rows(config, benchmark, run, out))


@step
def score(
    *,
    rows: Input,
    trace: Input,
    scorer: str,
    protocol: str,
    benchmark: str,
    run: str,
    within_budget: bool = False,
    out: Output,
    outcomes: Output,
) -> None:
    """Score a run on a benchmark under one protocol; `outcomes` gets a row per example."""
    from adafuse.metrics.score import score_trace, write_outcomes, write_score

    names = {"benchmark": benchmark, "run": run}
    result = score_trace(rows, trace, scorer, protocol, **names, within_budget=within_budget)
    write_outcomes(outcomes, result.outcomes, {"scorer": scorer, "score": asdict(result.score)})
    write_score(out, result.score)
    main = result.score.main
    logger.info("%.2f%s, n = %d", main.value, main.ends(2, form=" [{}, {}]"), result.score.n)


@step
def table(
    scores: Inputs,
    *,
    config: "Config",
    csv: Output,
    markdown: Output,
    published_csv: OptionalOutput = None,
) -> None:
    """Build the main table from scores; the published protocol gets tables of its own."""
    from adafuse.metrics.published import read_published
    from adafuse.metrics.score import read_score
    from adafuse.metrics.scorer import PUBLISHED
    from adafuse.report.main_table import main_table, score_table, tables_markdown
    from adafuse.report.tables import write_table

    found = [read_score(path) for path in scores]
    strict, published, paper = main_table(config, found), None, None
    if published_csv is not None:
        published = main_table(config, found, PUBLISHED)
        write_table(score_table(published), published_csv)
    if config.published_numbers is not None:
        paper = read_published(Path(config.published_numbers))
    write_table(score_table(strict, tables_markdown(strict, published, paper)), csv, markdown)
    logger.info("%d runs on %d benchmarks", len(strict.rows), len(strict.columns))


@step
def audit(*, config: "Config", csv: Output, markdown: Output) -> None:
    """Count what only the published protocol accepts, over all stored outcomes."""
    from adafuse.report.tables import audit_table, stored_audits, write_table

    audits = stored_audits(config)
    write_table(audit_table(audits), csv, markdown)
    logger.info("%d accepted by the published scorer only", sum(len(a.accepted) for a in audits))


@step
def datasets(*, config: "Config", csv: Output, markdown: Output) -> None:
    """Describe the benchmarks: rows, lengths, repetitions, beside the paper's figures."""
    from adafuse.report.tables import datasets_table, write_table
    from adafuse.workflow.benchmarks import describe_benchmarks

    lines = describe_benchmarks(config)
    write_table(datasets_table(lines), csv, markdown)
    logger.info("%d benchmarks", len(lines))


@step
def summary(config: Path = Path("config/toy.yaml")) -> None:
    """Print the main table and where every output is."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from adafuse.errors import UserError
    from adafuse.report.main_table import stored_table
    from adafuse.workflow.layout import ResultsLayout

    settings = _read(str(config))
    layout, table = ResultsLayout(settings.results), stored_table(settings)
    if not any(column.n for column in table.columns):
        folder = str(layout.scores / "strict")
        raise UserError(f"{folder!r} has no scores of this configuration; run snakemake")
    console = Console(width=None if sys.stdout.isatty() else 160)
    if table.note:
        console.print(f"[bold]Note:[/bold] {escape(table.note)}")
    for warning in table.warnings:
        console.print(f"[bold]Warning:[/bold] {escape(warning)}")
    grid = Table("run", "models", title="Scores in percent, with 95 % intervals")
    for column in table.columns:
        grid.add_column(f"{escape(column.name)}\nn = {column.n}", justify="right")
    if table.averaged:
        grid.add_column("macro\naverage", justify="right")
    for row in table.rows:
        name = escape(row.run) + "\n(oracle)" * row.oracle
        grid.add_row(name, escape("\n".join(row.models)), *map(_cell, table.shown(row)))
    console.print(grid)
    for name, path in layout.outputs(settings.protocols).items():
        console.print(f"{name:<24}{escape(str(path))}", soft_wrap=True)


def _cell(cell: "Cell") -> str:
    text = "\n".join(filter(None, (cell.text, cell.interval, cell.doubts)))
    return f"[bold]{text}[/bold]" if cell.best else text
