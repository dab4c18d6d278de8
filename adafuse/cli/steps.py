"""The main table in the terminal."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from adafuse.metrics.scorer import STRICT
from adafuse.report.main_table import CellView, ScoreTable, table_view
from adafuse.workflow.tables import Output


def print_table(table: ScoreTable, console: Console) -> None:
    """Print the table, its note first."""
    if table.note:
        console.print(f"[bold]Note:[/bold] {escape(table.note)}")
    view = table_view(table, STRICT, {}, {})
    grid = Grid("run", "models", title="Scores in percent, with 95 % intervals")
    for name, _, n in view.headings:
        grid.add_column(f"{escape(name)}\nn = {n}", justify="right")
    grid.add_column("macro\naverage", justify="right")
    for row in view.rows:
        name = escape(row.run) + "\n(oracle)" * row.oracle
        grid.add_row(name, escape("\n".join(row.models)), *map(_cell, row.cells))
    console.print(grid)


def print_outputs(outputs: list[Output], console: Console) -> None:
    """Say where every output is."""
    for output in outputs:
        console.print(f"{output.name:<24}{escape(str(output.path))}", soft_wrap=True)


def _cell(cell: CellView) -> str:
    text = f"{cell.value}\n{cell.interval}" if cell.interval else cell.value
    return f"[bold]{text}[/bold]" if cell.best else text


logger = logging.getLogger(__name__)

comparison_app = typer.Typer(help="Compare runs.", no_args_is_help=True)


@comparison_app.command("compare-runs")
def compare_runs_step(
    scores: Annotated[list[Path], typer.Argument(help="Scores, their outcomes beside them.")],
    config: Annotated[Path, typer.Option("--config", help="As the workflow stored it.")],
    csv: Annotated[Path, typer.Option(help="The CSV file to write.")],
    markdown: Annotated[Path, typer.Option(help="The Markdown file to write.")],
) -> None:
    """Test every ensemble against its members and the best baseline."""
    from adafuse.config.reading import read_config
    from adafuse.metrics.compare import compare_runs, models_without_single
    from adafuse.metrics.score import read_scored
    from adafuse.report.tables import comparison_table, write_table

    settings = read_config(config)
    named = [(name, settings.runs[name]) for name in settings.main_runs]
    runs = {name: (run.method, run.models) for name, run in named}
    comparisons = compare_runs(runs, [read_scored(path) for path in scores])
    write_table(comparison_table(comparisons, models_without_single(runs)), csv, markdown)
    logger.info("%d comparisons", len(comparisons))


@comparison_app.command("words-per-round")
def words_per_round_step(
    csv: Annotated[Path, typer.Option(help="The CSV file to write.")],
    traces: Annotated[list[Path] | None, typer.Argument(help="Merged traces.")] = None,
) -> None:
    """Count how many words the rounds of each run committed."""
    from adafuse.report.measures import words_per_round
    from adafuse.report.tables import words_table, write_table

    shares = [share for trace in traces or [] for share in words_per_round(trace)]
    write_table(words_table(shares), csv)
    logger.info("%d traces", len(traces or []))


experiments_app = typer.Typer(help="Tables and figures of the paper.", no_args_is_help=True)


@experiments_app.command("experiment")
def experiment_step(
    config: Annotated[Path, typer.Option("--config", help="As the workflow stored it.")],
    name: Annotated[str, typer.Option(help="An experiment of the configuration.")],
    csv: Annotated[Path, typer.Option(help="The CSV file to write.")],
    svg: Annotated[Path, typer.Option(help="The figure to write as SVG.")],
    png: Annotated[Path, typer.Option(help="The figure to write as PNG.")],
) -> None:
    """Turn stored results into the numbers and the figure of an experiment."""
    from adafuse.config.reading import read_config
    from adafuse.files import write_bytes
    from adafuse.report.charts import stored
    from adafuse.report.experiments import find_experiment, points_table
    from adafuse.report.figures import measured
    from adafuse.report.tables import write_table

    points, figure = measured(find_experiment(read_config(config), name))
    write_table(points_table(points), csv)
    write_bytes(svg, stored(figure, "svg"))
    write_bytes(png, stored(figure, "png"))
    logger.info("%d points", len(points))


prefetch_app = typer.Typer()


@prefetch_app.command("prefetch")
def prefetch_step(
    config: Annotated[Path, typer.Option("--config", help="As the workflow stored it.")],
) -> None:
    """Download models and data sets of a configuration and record their commits."""
    from adafuse.config.reading import read_config
    from adafuse.models.hub import download
    from adafuse.workflow.prefetch import prefetch, record_file, with_commits

    settings = with_commits(read_config(config))
    commits = prefetch(settings, download)
    for (path, revision), commit in commits.items():
        logger.info("%s, revision %s: commit %s", path, revision, commit)
    logger.info("%d models in %s", len(commits), record_file(settings.results))


report_app = typer.Typer(help="The report.", no_args_is_help=True)

ConfigFile = Annotated[Path, typer.Option("--config", help="As the workflow stored it.")]


@report_app.command("examples")
def examples_step(
    config: ConfigFile,
    benchmark: Annotated[str, typer.Option(help="A benchmark of the configuration.")],
    out: Annotated[Path, typer.Option(help="The folder of the report.")],
) -> None:
    """Write the trace explorer's data of a benchmark."""
    from adafuse.config.reading import read_config
    from adafuse.report.pages import write_examples
    from adafuse.report.stored import Stored

    stored = Stored.main(read_config(config))
    write_examples(stored, benchmark, out)
    logger.info("%d runs", len(stored.runs[benchmark]))


@report_app.command("pages")
def pages_step(
    config: ConfigFile,
    out: Annotated[Path, typer.Option(help="The folder of the report.")],
) -> None:
    """Write the report's pages; the examples beside them are there already."""
    from adafuse.config.reading import read_config
    from adafuse.report.pages import write_pages
    from adafuse.report.stored import Stored

    write_pages(Stored.main(read_config(config)), out)


KILLED = 137
"""The exit status of a job that was sent SIGKILL, as a shell reports it."""

app = typer.Typer(help="Run one step of the workflow.", no_args_is_help=True)
app.add_typer(comparison_app)
app.add_typer(experiments_app)
app.add_typer(prefetch_app)
app.add_typer(report_app)

Benchmark = Annotated[str, typer.Option(help="A benchmark of the configuration.")]
Run = Annotated[str, typer.Option(help="A run of the configuration.")]
Shard = Annotated[int, typer.Option(help="Counted from 0.")]
Rows = Annotated[Path, typer.Option(help="Prepared rows.")]
Out = Annotated[Path, typer.Option(help="The file to write.")]


@app.callback()
def _log() -> None:
    # A rule's log says when what happened, whatever the command line above has set up.
    logging.basicConfig(
        force=True, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("adafuse").setLevel(logging.INFO)


@app.command("fetch")
def fetch_step(
    source: Annotated[str, typer.Option(help="A `source` section as JSON.")], out: Out
) -> None:
    """Load a dataset and write its rows; planning does it once for each dataset."""
    from adafuse.workflow.benchmarks import fetch_source

    logger.info("%d rows", fetch_source(source, out))


@app.command("prepare")
def prepare_step(config: ConfigFile, benchmark: Benchmark, out: Out) -> None:
    """Read a benchmark and put every question into its prompt."""
    from adafuse.benchmarks.shards import write_prepared
    from adafuse.config.reading import read_config
    from adafuse.workflow.benchmarks import prepare_benchmark

    prepared = prepare_benchmark(read_config(config), benchmark)
    write_prepared(out, prepared.rows)
    shots = sum(row.shot for row in prepared.rows)
    found = (len(prepared.rows), prepared.duplicates, shots)
    logger.info("%d rows, %d with a repeated id, %d few-shot examples of the prompt", *found)


@app.command("shard")
def shard_step(config: ConfigFile, benchmark: Benchmark, shard: Shard, out: Out) -> None:
    """Prepare the rows of one shard of a benchmark."""
    from adafuse.benchmarks.shards import write_shard
    from adafuse.config.reading import read_config
    from adafuse.workflow.benchmarks import prepare_shard

    chosen = prepare_shard(read_config(config), benchmark, shard)
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
        list[Path] | None, typer.Option(help="The shard's trace of each model alone.")
    ] = None,
) -> None:
    """Decode a shard with a run; an interrupted job goes on where it was."""
    from adafuse.config.reading import read_config
    from adafuse.workflow.decode import decode_shard, ensemble_decoder
    from adafuse.workflow.jobs import decode_job

    settings = read_config(config)
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
    from adafuse.workflow.merge import merge_shards

    merge_shards(shards, digests.split(","), rows, out)
    logger.info("%d shards", len(shards))


@app.command("choose")
def choose_step(config: ConfigFile, benchmark: Benchmark, run: Run, out: Out) -> None:
    """Make the trace of a run that chooses between other runs."""
    from adafuse.config.reading import read_config
    from adafuse.workflow.choose import choose_rows

    counts = choose_rows(read_config(config), benchmark, run, out)
    logger.info("rows from %s", counts)


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
    from dataclasses import asdict

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
    csv: Annotated[Path, typer.Option(help="The CSV file to write.")],
    markdown: Annotated[Path, typer.Option(help="The Markdown file to write.")],
    published_csv: Annotated[Path | None, typer.Option(help="With both protocols.")] = None,
) -> None:
    """Build the main table from scores; the published protocol gets tables of its own."""
    from adafuse.config.reading import read_config
    from adafuse.metrics.published import read_published
    from adafuse.metrics.score import read_score
    from adafuse.metrics.scorer import PUBLISHED
    from adafuse.report.main_table import main_table, score_table, tables_markdown
    from adafuse.report.tables import write_table

    settings, found = read_config(config), [read_score(path) for path in scores]
    table, published, paper = main_table(settings, found), None, None
    if published_csv is not None:
        published = main_table(settings, found, PUBLISHED)
        write_table(score_table(published), published_csv)
    if settings.published_numbers is not None:
        paper = read_published(Path(settings.published_numbers))
    write_table(score_table(table, tables_markdown(table, published, paper)), csv, markdown)
    logger.info("%d runs on %d benchmarks", len(table.rows), len(table.benchmarks))


@app.command("audit")
def audit_step(
    config: ConfigFile,
    csv: Annotated[Path, typer.Option(help="The CSV file to write.")],
    markdown: Annotated[Path, typer.Option(help="The Markdown file to write.")],
) -> None:
    """Count what only the published protocol accepts, over all stored outcomes."""
    from adafuse.config.reading import read_config
    from adafuse.report.tables import audit_table, stored_audits, write_table

    audits = stored_audits(read_config(config))
    write_table(audit_table(audits), csv, markdown)
    logger.info("%d accepted by the published scorer only", sum(len(a.accepted) for a in audits))


@app.command("datasets")
def datasets_step(
    config: ConfigFile,
    csv: Annotated[Path, typer.Option(help="The CSV file to write.")],
    markdown: Annotated[Path, typer.Option(help="The Markdown file to write.")],
) -> None:
    """Describe the benchmarks: rows, lengths, repetitions, beside the paper's figures."""
    from adafuse.config.reading import read_config
    from adafuse.report.tables import datasets_table, write_table
    from adafuse.workflow.benchmarks import describe_benchmarks

    lines = describe_benchmarks(read_config(config))
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

    pass  # regroup
    from adafuse.config.reading import read_config
    from adafuse.report.main_table import main_table, stored_scores
    from adafuse.workflow.tables import outputs

    settings = read_config(config)
    console = Console(width=None if sys.stdout.isatty() else 160)
    print_table(main_table(settings, stored_scores(settings)), console)
    print_outputs(outputs(settings), console)


@app.command("schema")
def schema_step() -> None:
    """Print the JSON schema of the configuration, made from its types."""
    from adafuse.config.schema import schema_text

    typer.echo(schema_text(), nl=False)
