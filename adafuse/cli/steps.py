"""The main table in the terminal."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from adafuse.report.table_view import CellView, table_view
from adafuse.scoring.table import Table
from adafuse.scoring.tasks import STRICT
from adafuse.workflow.tables import Output


def print_table(table: Table, console: Console) -> None:
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
    """Say where every output lies."""
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
    from adafuse.comparison.compare import compare_runs
    from adafuse.comparison.comparison_table import to_csv, to_markdown
    from adafuse.comparison.outcomes import read_scored
    from adafuse.comparison.pairings import models_never_alone
    from adafuse.config.reading import read_config
    from adafuse.files import write_text

    settings = read_config(config)
    named = [(name, settings.runs[name]) for name in settings.main_runs]
    runs = {name: (run.method, run.models) for name, run in named}
    comparisons = compare_runs(runs, [read_scored(path) for path in scores])
    write_text(csv, to_csv(comparisons))
    write_text(markdown, to_markdown(comparisons, models_never_alone(runs)))
    logger.info("%d comparisons", len(comparisons))


@comparison_app.command("words-per-round")
def words_per_round_step(
    csv: Annotated[Path, typer.Option(help="The CSV file to write.")],
    traces: Annotated[list[Path] | None, typer.Argument(help="Merged traces.")] = None,
) -> None:
    """Count how many words the rounds of each run committed."""
    from adafuse.comparison.words_per_round import to_csv, words_per_round
    from adafuse.files import write_text

    shares = [share for trace in traces or [] for share in words_per_round(trace)]
    write_text(csv, to_csv(shares))
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
    from adafuse.experiments.build import build
    from adafuse.experiments.inputs import find_experiment
    from adafuse.files import write_bytes, write_text

    built = build(find_experiment(read_config(config), name))
    write_text(csv, built.csv)
    write_bytes(svg, built.svg)
    write_bytes(png, built.png)
    logger.info("%d points", built.csv.count("\n") - 1)


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
    from adafuse.report.build import write_examples
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
    from adafuse.report.build import write_pages
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
    """Read a benchmark and put every question into its frame."""
    from adafuse.benchmarks.shards import write_prepared
    from adafuse.config.reading import read_config
    from adafuse.workflow.benchmarks import prepare_benchmark

    prepared = prepare_benchmark(read_config(config), benchmark)
    write_prepared(out, prepared.rows)
    shots = sum(row.shot for row in prepared.rows)
    found = (len(prepared.rows), prepared.duplicates, shots)
    logger.info("%d rows, %d with a repeated id, %d worked examples of the prompt", *found)


@app.command("shard")
def shard_step(config: ConfigFile, benchmark: Benchmark, shard: Shard, out: Out) -> None:
    """Take the rows of one shard out of a benchmark."""
    from adafuse.benchmarks.shards import write_shard
    from adafuse.config.reading import read_config
    from adafuse.workflow.benchmarks import prepare_benchmark

    chosen = prepare_benchmark(read_config(config), benchmark).shard(shard)
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
    metric: Annotated[str, typer.Option(help="nq, squad, triviaqa, gsm8k, translation, ...")],
    protocol: Annotated[str, typer.Option(help="strict or published.")],
    benchmark: Benchmark,
    run: Run,
    out: Out,
    outcomes: Annotated[Path, typer.Option(help="Where each example's outcome goes (Parquet).")],
) -> None:
    """Score a run on a benchmark under one protocol."""
    from dataclasses import asdict

    from adafuse.scoring.outcomes import write_outcomes
    from adafuse.scoring.score import score_trace, write_score

    result = score_trace(rows, trace, metric, protocol, benchmark=benchmark, run=run)
    write_outcomes(outcomes, result.outcomes, {"metric": metric, "score": asdict(result.score)})
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
    from adafuse.comparison.published import read_published
    from adafuse.comparison.published_markdown import published_section
    from adafuse.config.reading import read_config
    from adafuse.files import write_text
    from adafuse.scoring.markdown import to_markdown
    from adafuse.scoring.protocols import protocols_markdown
    from adafuse.scoring.score import read_score
    from adafuse.scoring.table import to_csv
    from adafuse.scoring.tasks import PUBLISHED
    from adafuse.workflow.tables import main_table

    settings, found = read_config(config), [read_score(path) for path in scores]
    table = main_table(settings, found)
    text = to_markdown(table)
    if published_csv is not None:
        published = main_table(settings, found, PUBLISHED)
        write_text(published_csv, to_csv(published))
        text = protocols_markdown(table, published)
    if settings.published_numbers is not None:
        numbers = read_published(Path(settings.published_numbers))
        text += "\n" + published_section(numbers, table.benchmarks, settings.protocols[-1])
    write_text(csv, to_csv(table))
    write_text(markdown, text)
    logger.info("%d runs on %d benchmarks", len(table.rows), len(table.benchmarks))


@app.command("audit")
def audit_step(
    config: ConfigFile,
    csv: Annotated[Path, typer.Option(help="The CSV file to write.")],
    markdown: Annotated[Path, typer.Option(help="The Markdown file to write.")],
) -> None:
    """Count what only the published protocol accepts, over all stored outcomes."""
    from adafuse.config.reading import read_config
    from adafuse.files import write_text
    from adafuse.scoring.audit import audit_csv, audit_markdown
    from adafuse.workflow.tables import stored_audits

    audits = stored_audits(read_config(config))
    write_text(csv, audit_csv(audits))
    write_text(markdown, audit_markdown(audits))
    logger.info("%d accepted by the published scorer only", sum(len(a.accepted) for a in audits))


@app.command("datasets")
def datasets_step(
    config: ConfigFile,
    csv: Annotated[Path, typer.Option(help="The CSV file to write.")],
    markdown: Annotated[Path, typer.Option(help="The Markdown file to write.")],
) -> None:
    """Describe the benchmarks: rows, lengths, repetitions, beside the paper's figures."""
    from adafuse.benchmarks.description import to_csv, to_markdown
    from adafuse.config.reading import read_config
    from adafuse.files import write_text
    from adafuse.workflow.benchmarks import describe_benchmarks

    lines = describe_benchmarks(read_config(config))
    write_text(csv, to_csv(lines))
    write_text(markdown, to_markdown(lines))
    logger.info("%d benchmarks", len(lines))


@app.command("summary")
def summary_step(
    config: Annotated[Path, typer.Argument(help="The workflow's configuration.")] = Path(
        "config/toy.yaml"
    ),
) -> None:
    """Print the main table and where every output lies."""
    from rich.console import Console

    pass  # regroup
    from adafuse.config.reading import read_config
    from adafuse.workflow.tables import main_table, outputs, stored_scores

    settings = read_config(config)
    console = Console(width=None if sys.stdout.isatty() else 160)
    print_table(main_table(settings, stored_scores(settings)), console)
    print_outputs(outputs(settings), console)


@app.command("schema")
def schema_step() -> None:
    """Print the JSON schema of the configuration, made from its types."""
    from adafuse.config.schema import schema_text

    typer.echo(schema_text(), nl=False)
