"""`adafuse step`: what the rules of the workflow run, and what makes its schema and summary."""

import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from adafuse.config.config import Config
    from adafuse.report.main_table import CellView, ScoreTable

logger = logging.getLogger(__name__)
app = typer.Typer(help="Run one step of the workflow.", no_args_is_help=True)

KILLED = 137
"""The exit status of a job that was sent SIGKILL, as a shell reports it."""

ConfigFile = Annotated[Path, typer.Option("--config", help="As the workflow stored it.")]
Benchmark = Annotated[str, typer.Option(help="A benchmark of the configuration.")]
Run = Annotated[str, typer.Option(help="A run of the configuration.")]
Shard = Annotated[int, typer.Option(help="Counted from 0.")]
Rows = Annotated[Path, typer.Option(help="Prepared rows.")]
Out = Annotated[Path, typer.Option(help="The file to write.")]
Csv = Annotated[Path, typer.Option(help="The CSV file to write.")]
Markdown = Annotated[Path, typer.Option(help="The Markdown file to write.")]
ReportFolder = Annotated[Path, typer.Option(help="The folder of the report.")]


@app.callback()
def _log() -> None:
    # A rule's log says when what happened, whatever the command line above has set up.
    logging.basicConfig(
        force=True, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("adafuse").setLevel(logging.INFO)


def _read(config: Path) -> "Config":
    from adafuse.config.reading import read_config

    return read_config(config)


@app.command("compare-runs")
def compare_runs_step(
    scores: Annotated[list[Path], typer.Argument(help="Scores, their outcomes beside them.")],
    config: ConfigFile,
    csv: Csv,
    markdown: Markdown,
) -> None:
    """Test every ensemble against its members and the best baseline."""
    from adafuse.metrics.compare import compare_runs, models_without_single
    from adafuse.metrics.score import read_scored
    from adafuse.report.tables import comparison_table, write_table

    settings = _read(config)
    named = [(name, settings.runs[name]) for name in settings.main_runs]
    runs = {name: (run.method, run.models) for name, run in named}
    comparisons = compare_runs(runs, [read_scored(path) for path in scores])
    write_table(comparison_table(comparisons, models_without_single(runs)), csv, markdown)
    logger.info("%d comparisons", len(comparisons))


@app.command("words-per-round")
def words_per_round_step(
    csv: Csv,
    traces: Annotated[list[Path] | None, typer.Argument(help="Merged traces.")] = None,
) -> None:
    """Count how many words the rounds of each run committed."""
    from adafuse.report.measures import words_per_round
    from adafuse.report.tables import words_table, write_table

    shares = [share for trace in traces or [] for share in words_per_round(trace)]
    write_table(words_table(shares), csv)
    logger.info("%d traces", len(traces or []))


@app.command("experiment")
def experiment_step(
    config: ConfigFile,
    name: Annotated[str, typer.Option(help="An experiment of the configuration.")],
    csv: Csv,
    svg: Annotated[Path, typer.Option(help="The figure to write as SVG.")],
    png: Annotated[Path, typer.Option(help="The figure to write as PNG.")],
) -> None:
    """Turn stored results into the numbers and the figure of an experiment."""
    from adafuse.files import write_bytes
    from adafuse.report.charts import stored
    from adafuse.report.experiments import find_experiment, points_table
    from adafuse.report.figures import measured
    from adafuse.report.tables import write_table

    points, figure = measured(find_experiment(_read(config), name))
    write_table(points_table(points), csv)
    write_bytes(svg, stored(figure, "svg"))
    write_bytes(png, stored(figure, "png"))
    logger.info("%d points", len(points))


@app.command("prefetch")
def prefetch_step(config: ConfigFile) -> None:
    """Download models and data sets of a configuration and record their commits."""
    from adafuse.models.hub import download
    from adafuse.workflow.layout import ResultsLayout
    from adafuse.workflow.prefetch import prefetch, with_commits

    settings = with_commits(_read(config))
    commits = prefetch(settings, download)
    for (path, revision), commit in commits.items():
        logger.info("%s, revision %s: commit %s", path, revision, commit)
    logger.info("%d models in %s", len(commits), ResultsLayout(settings.results).commits)


@app.command("examples")
def examples_step(config: ConfigFile, benchmark: Benchmark, out: ReportFolder) -> None:
    """Write the trace explorer's data of a benchmark."""
    from adafuse.report.pages import write_examples
    from adafuse.report.stored import Stored

    stored = Stored.main(_read(config))
    write_examples(stored, benchmark, out)
    logger.info("%d runs", len(stored.runs[benchmark]))


@app.command("pages")
def pages_step(config: ConfigFile, out: ReportFolder) -> None:
    """Write the report's pages; the examples beside them are there already."""
    from adafuse.report.pages import write_pages
    from adafuse.report.stored import Stored

    write_pages(Stored.main(_read(config)), out)


@app.command("fetch")
def fetch_step(
    source: Annotated[str, typer.Option(help="A `source` section as JSON.")], out: Out
) -> None:
    """Load a dataset and write its rows; planning does it once for each dataset."""
    from adafuse.config.benchmarks import SourceConfig
    from adafuse.workflow.benchmarks import fetch

    logger.info("%d rows", fetch(SourceConfig.model_validate_json(source), out))


@app.command("prepare")
def prepare_step(config: ConfigFile, benchmark: Benchmark, out: Out) -> None:
    """Read a benchmark and put every question into its prompt template."""
    from adafuse.benchmarks.shards import write_prepared
    from adafuse.workflow.benchmarks import prepare_benchmark

    prepared = prepare_benchmark(_read(config), benchmark)
    write_prepared(out, prepared.rows)
    shots = sum(row.shot for row in prepared.rows)
    counts = (len(prepared.rows), prepared.duplicates, shots)
    logger.info("%d rows, %d with a repeated id, %d few-shot examples of the prompt", *counts)


@app.command("shard")
def shard_step(config: ConfigFile, benchmark: Benchmark, shard: Shard, out: Out) -> None:
    """Prepare the rows of one shard of a benchmark."""
    from adafuse.benchmarks.shards import write_shard
    from adafuse.workflow.benchmarks import prepare_benchmark

    chosen = prepare_benchmark(_read(config), benchmark).shard(shard)
    write_shard(out, chosen)
    logger.info("%d rows", len(chosen))


@app.command("decode")
def decode_step(
    config: ConfigFile,
    benchmark: Benchmark,
    run: Run,
    shard: Shard,
    rows: Rows,
    digest: Annotated[str, typer.Option(help="What the plan expects of this job.")],
    out: Out,
    answers: Annotated[
        list[Path] | None, typer.Option(help="The shard's trace of each single model.")
    ] = None,
) -> None:
    """Decode a shard with a run; an interrupted job goes on where it was."""
    from adafuse.workflow.decode import decode_shard, ensemble_decoder
    from adafuse.workflow.jobs import decode_job

    settings = _read(config)
    decode_shard(
        decode_job(settings, benchmark, run),
        shard,
        rows,
        out,
        digest=digest,
        decoder=ensemble_decoder,
        answers=answers or [],
        max_error_share=settings.decode.max_error_share,
    )


@app.command("ended")
def ended_step(status: Annotated[int, typer.Argument(help="Exit status of a decode job.")]) -> None:
    """Say in the log what a decode job died of, where it could not do so itself."""
    if status == KILLED:
        logger.error(
            "the job was killed (exit status %d), which mostly means too little memory: lower"
            " batch_size, set it to auto, or ask the cluster for more; what is decoded is kept",
            status,
        )


@app.command("merge")
def merge_step(
    shards: list[Path],
    digests: Annotated[str, typer.Option(help="Expected digests, joined by commas.")],
    rows: Annotated[list[Path], typer.Option(help="The rows of a shard; repeatable.")],
    out: Out,
) -> None:
    """Join the shards of a run, after checking that each belongs to the plan."""
    from adafuse.workflow.decode import merge_shards

    merge_shards(shards, digests.split(","), rows, out)
    logger.info("%d shards", len(shards))


@app.command("choose")
def choose_step(config: ConfigFile, benchmark: Benchmark, run: Run, out: Out) -> None:
    """Make the trace of a run that chooses between other runs."""
    from adafuse.workflow.choose import choose_rows

    logger.info("rows from %s", choose_rows(_read(config), benchmark, run, out))


@app.command("score")
def score_step(
    rows: Rows,
    trace: Annotated[Path, typer.Option(help="A merged trace.")],
    scorer: Annotated[str, typer.Option(help="nq, squad, triviaqa, gsm8k, translation, ...")],
    protocol: Annotated[str, typer.Option(help="strict or published.")],
    benchmark: Benchmark,
    run: Run,
    out: Out,
    outcomes: Annotated[Path, typer.Option(help="Where each example's outcome goes (Parquet).")],
) -> None:
    """Score a run on a benchmark under one protocol."""
    from adafuse.metrics.score import score_trace, write_outcomes, write_score

    result = score_trace(rows, trace, scorer, protocol, benchmark=benchmark, run=run)
    write_outcomes(outcomes, result.outcomes, {"scorer": scorer, "score": asdict(result.score)})
    write_score(out, result.score)
    main = result.score.main
    logger.info("%.2f [%.2f, %.2f], n = %d", main.value, main.low, main.high, result.score.n)


@app.command("table")
def table_step(
    scores: list[Path],
    config: ConfigFile,
    csv: Csv,
    markdown: Markdown,
    published_csv: Annotated[Path | None, typer.Option(help="With both protocols.")] = None,
) -> None:
    """Build the main table from scores; the published protocol gets tables of its own."""
    from adafuse.metrics.published import read_published
    from adafuse.metrics.score import read_score
    from adafuse.metrics.scorer import PUBLISHED
    from adafuse.report.main_table import main_table, score_table, tables_markdown
    from adafuse.report.tables import write_table

    settings, found = _read(config), [read_score(path) for path in scores]
    table, published, paper = main_table(settings, found), None, None
    if published_csv is not None:
        published = main_table(settings, found, PUBLISHED)
        write_table(score_table(published), published_csv)
    if settings.published_numbers is not None:
        paper = read_published(Path(settings.published_numbers))
    write_table(score_table(table, tables_markdown(table, published, paper)), csv, markdown)
    logger.info("%d runs on %d benchmarks", len(table.rows), len(table.benchmarks))


@app.command("audit")
def audit_step(config: ConfigFile, csv: Csv, markdown: Markdown) -> None:
    """Count what only the published protocol accepts, over all stored outcomes."""
    from adafuse.report.tables import audit_table, stored_audits, write_table

    audits = stored_audits(_read(config))
    write_table(audit_table(audits), csv, markdown)
    logger.info("%d accepted by the published scorer only", sum(len(a.accepted) for a in audits))


@app.command("datasets")
def datasets_step(config: ConfigFile, csv: Csv, markdown: Markdown) -> None:
    """Describe the benchmarks: rows, lengths, repetitions, beside the paper's figures."""
    from adafuse.report.tables import datasets_table, write_table
    from adafuse.workflow.benchmarks import describe_benchmarks

    lines = describe_benchmarks(_read(config))
    write_table(datasets_table(lines), csv, markdown)
    logger.info("%d benchmarks", len(lines))


@app.command("summary")
def summary_step(
    config: Annotated[Path, typer.Argument(help="The workflow's configuration.")] = Path(
        "config/toy.yaml"
    ),
) -> None:
    """Print the main table and where every output is."""
    from rich.console import Console
    from rich.markup import escape

    from adafuse.report.main_table import stored_table
    from adafuse.workflow.layout import ResultsLayout

    settings = _read(config)
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = stored_table(settings)
    if table.note:
        console.print(f"[bold]Note:[/bold] {escape(table.note)}")
    console.print(_grid(table))
    for name, path in ResultsLayout(settings.results).outputs(settings.protocols).items():
        console.print(f"{name:<24}{escape(str(path))}", soft_wrap=True)


def _grid(table: "ScoreTable") -> "Grid":
    from rich.markup import escape
    from rich.table import Table as Grid

    from adafuse.metrics.scorer import STRICT
    from adafuse.report.main_table import table_view

    view = table_view(table, STRICT, {}, {})
    grid = Grid("run", "models", title="Scores in percent, with 95 % intervals")
    for name, _, n in view.headings:
        grid.add_column(f"{escape(name)}\nn = {n}", justify="right")
    grid.add_column("macro\naverage", justify="right")
    for row in view.rows:
        name = escape(row.run) + "\n(oracle)" * row.oracle
        grid.add_row(name, escape("\n".join(row.models)), *map(_cell, row.cells))
    return grid


def _cell(cell: "CellView") -> str:
    text = f"{cell.value}\n{cell.interval}" if cell.interval else cell.value
    return f"[bold]{text}[/bold]" if cell.best else text


@app.command("schema")
def schema_step() -> None:
    """Print the JSON schema of the configuration, made from its types."""
    from adafuse.config.schema import schema_text

    typer.echo(schema_text(), nl=False)
