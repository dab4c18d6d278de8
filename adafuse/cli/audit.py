"""`adafuse audit`: what the published scorer accepts and the strict one does not."""

from pathlib import Path
from typing import Annotated

import typer

from adafuse.cli.score import Benchmark, Metric, Predictions, References
from adafuse.cli.scored_files import read_scored
from adafuse.scoring.audit import audit as compare
from adafuse.scoring.audit import audit_csv, audit_markdown
from adafuse.scoring.score import evaluate
from adafuse.scoring.tasks import PUBLISHED, STRICT
from adafuse.traces.atomic import check_writable, write_text


def audit(
    benchmark: Benchmark,
    predictions: Predictions,
    references: References,
    metric: Metric = None,
    csv: Annotated[Path | None, typer.Option(help="Also write the counts here.")] = None,
) -> None:
    """Score the same predictions under both protocols and list what only `published` accepts.

    Example: adafuse audit --benchmark squad --predictions p.jsonl --references squad.jsonl
    """
    if csv is not None:
        check_writable(csv)
    files = read_scored(benchmark, predictions, references, metric)
    strict, published = (
        evaluate(
            files.rows,
            files.predictions,
            files.metric,
            protocol,
            benchmark=benchmark,
            run=predictions.stem,
        )
        for protocol in (STRICT, PUBLISHED)
    )
    result = compare(
        strict.outcomes,
        published.outcomes,
        files.metric,
        benchmark=benchmark,
        run=predictions.stem,
    )
    typer.echo(audit_markdown([result]), nl=False)
    difference = published.score.main.value - strict.score.main.value
    typer.echo(
        f"\n{strict.score.primary}: strict {strict.score.main.value:.2f}, published"
        f" {published.score.main.value:.2f}, {difference:+.2f} points"
    )
    if csv is not None:
        write_text(csv, audit_csv([result]))
