"""The tables of a configuration, from the scores and outcomes in its results folder."""

from collections.abc import Sequence
from pathlib import Path

from adafuse.comparison.published import read_published
from adafuse.comparison.published_markdown import published_section
from adafuse.config.config import Config
from adafuse.errors import UserError
from adafuse.files import write_text
from adafuse.scoring.audit import Audit, audit
from adafuse.scoring.markdown import to_markdown
from adafuse.scoring.outcomes import read_outcomes
from adafuse.scoring.protocols import protocols_markdown
from adafuse.scoring.score import Score, read_score
from adafuse.scoring.table import Table, build_table, to_csv
from adafuse.scoring.tasks import PUBLISHED, STRICT
from adafuse.workflow.layout import ResultsLayout


def stored_audits(config: Config) -> list[Audit]:
    """Compare both protocols for every benchmark and run, in the order of the configuration.

    Raises:
        UserError: an outcomes file is missing or of another form.
    """
    layout = ResultsLayout(config.results)
    return [
        audit(
            read_outcomes(layout.outcomes(STRICT, name, run)),
            read_outcomes(layout.outcomes(PUBLISHED, name, run)),
            config.benchmarks[name].metric,
            benchmark=name,
            run=run,
        )
        for name in config.main_benchmarks
        for run in config.main_runs
    ]


def main_table(config: Config, scores: Sequence[Score], protocol: str = STRICT) -> Table:
    """Arrange the scores of one protocol in the order of the configuration."""
    runs = {name: (config.runs[name].method, config.runs[name].models) for name in config.main_runs}
    chosen = [score for score in scores if score.protocol == protocol]
    return build_table(config.main_benchmarks, runs, chosen, config.note)


def stored_table(config: Config) -> Table:
    """Make the main table of the strict scores that a configuration's results folder has.

    Raises:
        UserError: there are none.
    """
    layout = ResultsLayout(config.results)
    cells = [(name, run) for name in config.main_benchmarks for run in config.main_runs]
    paths = [layout.score(STRICT, *cell) for cell in cells]
    found = [read_score(path) for path in paths if path.is_file()]
    if not found:
        folder = str(layout.scores / STRICT)
        raise UserError(f"{folder!r} holds no scores of this configuration; run snakemake")
    return main_table(config, found)


def write_main_table(
    config: Config, scores: Sequence[Path], csv: Path, markdown: Path, published_csv: Path | None
) -> Table:
    """Write the main table; the published protocol, where asked for, gets tables of its own.

    Raises:
        UserError: a score, or the file of published numbers, cannot be read.
    """
    found = [read_score(path) for path in scores]
    table = main_table(config, found)
    text = to_markdown(table)
    if published_csv is not None:
        published = main_table(config, found, PUBLISHED)
        write_text(published_csv, to_csv(published))
        text = protocols_markdown(table, published)
    if config.published_numbers is not None:
        numbers = read_published(Path(config.published_numbers))
        text += "\n" + published_section(numbers, table.benchmarks, config.protocols[-1])
    write_text(csv, to_csv(table))
    write_text(markdown, text)
    return table
