"""What an experiment reads: its section of the configuration and the workflow's result files."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adafuse.comparison.outcomes import Scored, read_scored
from adafuse.config.checks import check_experiments
from adafuse.config.config import Config
from adafuse.config.runs import ExperimentConfig, RunConfig
from adafuse.errors import UserError, known
from adafuse.experiments.points import RunName
from adafuse.methods.selections import SELECTIONS, is_oracle
from adafuse.scoring.score import Score, read_score
from adafuse.workflow.layout import ResultsLayout


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment by name in a configuration whose results lie on the disk."""

    config: Config
    name: str
    section: ExperimentConfig

    @property
    def cells(self) -> Iterator[tuple[str, str, str]]:
        """Protocol, benchmark and run of every score, in the order of the configuration."""
        for protocol in self.config.protocols:
            for benchmark in self.section.benchmarks:
                for run in self.section.runs:
                    yield protocol, benchmark, run

    def run(self, name: str) -> RunConfig:
        """Return the configuration of a run."""
        return self.config.runs[name]

    def names(self, run: str) -> RunName:
        """Return how figures name a run."""
        spec = self.run(run)
        chosen_by = "oracle" if is_oracle(spec.method) else "development"
        selection = chosen_by if spec.method in SELECTIONS else ""
        return RunName(run, spec.method, "+".join(spec.models), selection)

    def score(self, protocol: str, benchmark: str, run: str) -> Score:
        """Read a score.

        Raises:
            UserError: it is missing or malformed.
        """
        return read_score(self._score_file(protocol, benchmark, run))

    def scored(self, protocol: str, benchmark: str, run: str) -> Scored:
        """Read a score with the outcomes beside it.

        Raises:
            UserError: one of them is missing or malformed.
        """
        path = self._score_file(protocol, benchmark, run)
        self._require(path.with_suffix(".outcomes.parquet"))
        return read_scored(path)

    def trace(self, benchmark: str, run: str) -> Path:
        """Return where the merged trace lies.

        Raises:
            UserError: it is missing.
        """
        return self._require(ResultsLayout(self.config.results).trace(benchmark, run))

    def _score_file(self, protocol: str, benchmark: str, run: str) -> Path:
        return self._require(ResultsLayout(self.config.results).score(protocol, benchmark, run))

    def _require(self, path: Path) -> Path:
        if not path.is_file():
            raise UserError(
                f"experiment {self.name!r} needs {str(path)!r}, which is not there; run snakemake"
                f" {self.name}"
            )
        return path


def find_experiment(config: Config, name: str) -> Experiment:
    """Return an experiment of a configuration.

    Raises:
        UserError: there is none of that name, or it does not fit the rest of the configuration.
    """
    if name not in config.experiments:
        raise UserError(known("experiment", name, list(config.experiments)))
    check_experiments(config)
    return Experiment(config, name, config.experiments[name])
