"""From the outcomes in a results folder to the audit of every run on every benchmark."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adafuse.config.config import Config
from adafuse.errors import UserError
from adafuse.scoring.audit import Audit, audit
from adafuse.scoring.outcomes import read_outcomes
from adafuse.scoring.score import Score, read_score
from adafuse.scoring.table import Table, build_table
from adafuse.scoring.tasks import PUBLISHED, STRICT


def stored_audits(config: Config) -> list[Audit]:
    """Compare both protocols for every benchmark and run, in the order of the configuration.

    Raises:
        UserError: an outcomes file is missing or of another form.
    """
    return [
        audit(
            read_outcomes(outcomes_file(config, STRICT, name, run)),
            read_outcomes(outcomes_file(config, PUBLISHED, name, run)),
            config.benchmarks[name].metric,
            benchmark=name,
            run=run,
        )
        for name in config.main_benchmarks
        for run in config.main_runs
    ]


def score_file(config: Config, protocol: str, benchmark: str, run: str) -> Path:
    """Return where the score of a run on a benchmark lies."""
    return Path(config.results, "scores", protocol, benchmark, f"{run}.json")


def outcomes_file(config: Config, protocol: str, benchmark: str, run: str) -> Path:
    """Return where the outcomes of a run on a benchmark lie."""
    return score_file(config, protocol, benchmark, run).with_suffix(".outcomes.parquet")


@dataclass(frozen=True, slots=True)
class Output:
    """One kind of output: what it is, and the files or folder that hold it."""

    name: str
    path: Path


def outputs(config: Config) -> list[Output]:
    """Return where the workflow writes what."""
    root = Path(config.results)
    published = [
        Output("published (CSV)", root / "tables" / "main_published.csv"),
        Output("audit", root / "tables" / "audit.md"),
    ]
    return [
        Output("report", root / "report" / "index.html"),
        Output("table (CSV)", root / "tables" / "main.csv"),
        Output("table (Markdown)", root / "tables" / "main.md"),
        *(published if PUBLISHED in config.protocols else []),
        Output("comparison", root / "tables" / "comparison.md"),
        Output("words per round", root / "tables" / "words_per_round.csv"),
        Output("dataset statistics", root / "tables" / "datasets.md"),
        Output("scores", root / "scores"),
        Output("traces", root / "traces"),
        Output("prepared benchmarks", root / "benchmarks"),
        Output("logs", root / "logs"),
        Output("resolved configuration", root / "config.json"),
    ]


def main_table(config: Config, scores: Sequence[Score], protocol: str = STRICT) -> Table:
    """Arrange the scores of one protocol in the order of the configuration."""
    runs = {name: (config.runs[name].method, config.runs[name].models) for name in config.main_runs}
    chosen = [score for score in scores if score.protocol == protocol]
    return build_table(config.main_benchmarks, runs, chosen, config.note)


def stored_scores(config: Config) -> list[Score]:
    """Read the strict scores that a configuration's results folder has.

    Raises:
        UserError: there are none.
    """
    folder = Path(config.results) / "scores" / STRICT
    paths = [
        folder / name / f"{run}.json" for name in config.main_benchmarks for run in config.main_runs
    ]
    found = [read_score(path) for path in paths if path.is_file()]
    if not found:
        raise UserError(f"{str(folder)!r} holds no scores of this configuration; run snakemake")
    return found
