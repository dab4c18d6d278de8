"""From the outcomes in a results folder to the audit of every run on every benchmark."""

from pathlib import Path

from adafuse.pipeline.config import Config
from adafuse.scoring.audit import Audit, audit
from adafuse.scoring.outcomes import read_outcomes
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
