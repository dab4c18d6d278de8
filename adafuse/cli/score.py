"""`adafuse score`: score a file of predictions, without any model."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from adafuse.cli.completion import one_of
from adafuse.cli.options import AsJson, Benchmark, Metric, Predictions, References, option
from adafuse.cli.output import echo_json, plain

if TYPE_CHECKING:
    from adafuse.scoring.score import Evaluation, Score


def score(
    benchmark: Benchmark,
    predictions: Predictions,
    references: References,
    protocol: Annotated[
        str,
        option("strict or published.", "NAME", autocompletion=one_of("strict", "published")),
    ] = "strict",
    out: Annotated[Path | None, option("The JSON file to write.", "FILE")] = None,
    as_json: AsJson = False,
    exclude: Annotated[
        Path | None, option("Rows that strict leaves out: an id or question a line.", "FILE")
    ] = None,
    metric: Metric = None,
    spm_sha256: Annotated[
        str | None, option("The SentencePiece model must be this one.", "SHA256")
    ] = None,
    bertscore: Annotated[
        str | None, option("Also BERTScore F1, for answers in this language.", "en, de, ...")
    ] = None,
) -> None:
    """Score predictions against references, in percent with 95 % intervals."""
    from adafuse.cli.scored_files import read_scored
    from adafuse.scoring.exclusions import read_exclusions
    from adafuse.scoring.score import evaluate
    from adafuse.scoring.spm import require_model
    from adafuse.scoring.tasks import PUBLISHED, check_protocol
    from adafuse.traces.atomic import check_writable, write_text

    check_protocol(protocol)
    if out is not None:
        check_writable(out)
    files = read_scored(benchmark, predictions, references, metric)
    if spm_sha256 is not None:
        require_model(spm_sha256)
    left_out = read_exclusions(exclude, files.rows) if exclude is not None else frozenset()
    result = evaluate(
        files.rows, files.predictions, files.metric, protocol,
        benchmark=benchmark, run=predictions.stem, exclude=left_out,
    )  # fmt: skip
    scored = result.score if bertscore is None else _with_bertscore(result, bertscore)
    if out is not None:
        write_text(out, json.dumps(plain(asdict(scored)), indent=2) + "\n")
    if as_json:
        echo_json(asdict(scored))
    else:
        _print(scored, kept=len(left_out) if protocol == PUBLISHED else 0)


def _with_bertscore(result: "Evaluation", language: str) -> "Score":
    from adafuse.scoring.bertscore import bertscore_f1

    estimate = bertscore_f1(result.outcomes, language)
    return replace(result.score, metrics={**result.score.metrics, "bertscore_f1": estimate})


def _print(scored: "Score", kept: int) -> None:
    from rich.console import Console
    from rich.table import Table

    title = f"{scored.benchmark}, {scored.protocol}, n = {scored.n}"
    if scored.excluded:
        title += f" ({scored.excluded} worked examples left out)"
    if kept:
        title += f" (published keeps the {kept} rows to exclude)"
    grid = Table("metric", "percent", "95 % interval")
    for name, value in scored.metrics.items():
        grid.add_row(name, f"{value.value:.2f}", f"{value.low:.2f} to {value.high:.2f}")
    console = Console(width=None if Console().is_terminal else 100)
    console.print(title, highlight=False, soft_wrap=True, markup=False)
    console.print(grid)
    counts = f"{scored.missing} missing, {scored.empty} empty, {scored.failed} failed"
    console.print(f"{counts}: counted as wrong", highlight=False)
    for name, detail in scored.details.items():
        console.print(f"{name}: {detail}", highlight=False, soft_wrap=True, markup=False)
