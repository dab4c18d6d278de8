"""`adafuse audit`: what the published scorer accepts and the strict one does not."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adafuse.cli.options import AsJson, Benchmark, Metric, Predictions, References, option
from adafuse.cli.output import echo_json

if TYPE_CHECKING:
    from adafuse.scoring.score import Evaluation


def audit(
    benchmark: Benchmark,
    predictions: Predictions,
    references: References,
    metric: Metric = None,
    csv: Annotated[Path | None, option("The CSV file to write, with the counts.", "FILE")] = None,
    as_json: AsJson = False,
) -> None:
    """Score under both protocols and list what only `published` accepts."""
    from adafuse.cli.scored_files import read_scored
    from adafuse.scoring.audit import audit as compare
    from adafuse.scoring.audit import audit_csv, audit_markdown
    from adafuse.scoring.score import evaluate
    from adafuse.scoring.tasks import PUBLISHED, STRICT
    from adafuse.traces.atomic import check_writable, write_text

    if csv is not None:
        check_writable(csv)
    files = read_scored(benchmark, predictions, references, metric)
    named = {"benchmark": benchmark, "run": predictions.stem}
    strict, published = (
        evaluate(files.rows, files.predictions, files.metric, protocol, **named)
        for protocol in (STRICT, PUBLISHED)
    )
    result = compare(strict.outcomes, published.outcomes, files.metric, **named)
    if csv is not None:
        write_text(csv, audit_csv([result]))
    if as_json:
        echo_json({**asdict(result), "scores": [_score(strict), _score(published)]})
        return
    typer.echo(audit_markdown([result]), nl=False)
    difference = published.score.main.value - strict.score.main.value
    typer.echo(
        f"\n{strict.score.primary}: strict {strict.score.main.value:.2f}, published"
        f" {published.score.main.value:.2f}, {difference:+.2f} points"
    )


def _score(evaluation: "Evaluation") -> dict[str, Any]:
    return asdict(evaluation.score)
