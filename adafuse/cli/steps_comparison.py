"""`adafuse step compare-runs` and `adafuse step words-per-round`."""

import logging
from pathlib import Path
from typing import Annotated

import typer

logger = logging.getLogger(__name__)

app = typer.Typer(help="Compare runs.", no_args_is_help=True)


@app.command("compare-runs")
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
    from adafuse.pipeline.parse import read_config
    from adafuse.traces.atomic import write_text

    settings = read_config(config)
    named = [(name, settings.runs[name]) for name in settings.main_runs]
    runs = {name: (run.method, run.models) for name, run in named}
    comparisons = compare_runs(runs, [read_scored(path) for path in scores])
    write_text(csv, to_csv(comparisons))
    write_text(markdown, to_markdown(comparisons, models_never_alone(runs)))
    logger.info("%d comparisons", len(comparisons))


@app.command("words-per-round")
def words_per_round_step(
    csv: Annotated[Path, typer.Option(help="The CSV file to write.")],
    traces: Annotated[list[Path] | None, typer.Argument(help="Merged traces.")] = None,
) -> None:
    """Count how many words the rounds of each run committed."""
    from adafuse.comparison.words_per_round import to_csv, words_per_round
    from adafuse.traces.atomic import write_text

    shares = [share for trace in traces or [] for share in words_per_round(trace)]
    write_text(csv, to_csv(shares))
    logger.info("%d traces", len(traces or []))
