"""Where scores and the outcomes of their examples are."""

from dataclasses import dataclass
from pathlib import Path

from adafuse.config.config import Config
from adafuse.metrics.scorer import PUBLISHED


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
