"""`adafuse step ...`: the commands that the workflow's rules run.

Each imports what it needs when it runs: most steps take less time than loading a library that
they do not use.
"""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from adafuse.cli.steps_comparison import app as comparison
from adafuse.cli.steps_experiments import app as experiments
from adafuse.cli.steps_prefetch import app as prefetch
from adafuse.cli.steps_report import app as report

logger = logging.getLogger(__name__)

app = typer.Typer(help="Run one step of the workflow.", no_args_is_help=True)
app.add_typer(comparison)
app.add_typer(experiments)
app.add_typer(prefetch)
app.add_typer(report)

ConfigFile = Annotated[Path, typer.Option("--config", help="As the workflow stored it.")]
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
    from adafuse.pipeline.fetching import fetch_source

    logger.info("%d rows", fetch_source(source, out))


@app.command("prepare")
def prepare_step(config: ConfigFile, benchmark: Benchmark, out: Out) -> None:
    """Read a benchmark and put every question into its frame."""
    from adafuse.benchmarks.prepare import write_prepared
    from adafuse.pipeline.parse import read_config
    from adafuse.pipeline.tasks import prepare_benchmark

    prepared = prepare_benchmark(read_config(config), benchmark)
    write_prepared(out, prepared.rows)
    shots = sum(row.shot for row in prepared.rows)
    found = (len(prepared.rows), prepared.duplicates, shots)
    logger.info("%d rows, %d with a repeated id, %d worked examples of the prompt", *found)


@app.command("shard")
def shard_step(config: ConfigFile, benchmark: Benchmark, shard: Shard, out: Out) -> None:
    """Take the rows of one shard out of a benchmark."""
    from adafuse.benchmarks.shards import write_shard
    from adafuse.pipeline.parse import read_config
    from adafuse.pipeline.tasks import prepare_benchmark

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
    from adafuse.pipeline.forkclient import delegate

    if (status := delegate(sys.argv[1:])) is not None:
        raise typer.Exit(status)
    from adafuse.pipeline.decode import decode_shard, ensemble_decoder
    from adafuse.pipeline.job import decode_job
    from adafuse.pipeline.parse import read_config

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
    from adafuse.pipeline.forkclient import KILLED

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
    from adafuse.pipeline.merge import merge_shards

    merge_shards(shards, digests.split(","), rows, out)
    logger.info("%d shards", len(shards))


@app.command("choose")
def choose_step(config: ConfigFile, benchmark: Benchmark, run: Run, out: Out) -> None:
    """Make the trace of a run that chooses between other runs."""
    from adafuse.pipeline.choose import choose_rows
    from adafuse.pipeline.parse import read_config

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
    from adafuse.pipeline.parse import read_config
    from adafuse.pipeline.report import main_table
    from adafuse.scoring.markdown import to_markdown
    from adafuse.scoring.protocols import protocols_markdown
    from adafuse.scoring.score import read_score
    from adafuse.scoring.table import to_csv
    from adafuse.scoring.tasks import PUBLISHED
    from adafuse.traces.atomic import write_text

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
    from adafuse.pipeline.audits import stored_audits
    from adafuse.pipeline.parse import read_config
    from adafuse.scoring.audit import audit_csv, audit_markdown
    from adafuse.traces.atomic import write_text

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
    from adafuse.benchmarks.describe_table import to_csv, to_markdown
    from adafuse.pipeline.parse import read_config
    from adafuse.pipeline.tasks import describe_benchmarks
    from adafuse.traces.atomic import write_text

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

    from adafuse.cli.steps_table import print_outputs, print_table
    from adafuse.pipeline.parse import read_config
    from adafuse.pipeline.report import main_table, outputs, stored_scores

    settings = read_config(config)
    console = Console(width=None if sys.stdout.isatty() else 160)
    print_table(main_table(settings, stored_scores(settings)), console)
    print_outputs(outputs(settings), console)


@app.command("schema")
def schema_step() -> None:
    """Print the JSON schema of the configuration, made from its types."""
    from adafuse.pipeline.schema import schema_text

    typer.echo(schema_text(), nl=False)
