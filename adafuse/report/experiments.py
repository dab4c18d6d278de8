"""An experiment of the configuration: what it reads, and the records of what it measured."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from adafuse.config.config import Config
from adafuse.config.experiments import ExperimentConfig
from adafuse.config.reading import check_published
from adafuse.config.runs import RunConfig
from adafuse.errors import UserError, known
from adafuse.metrics.score import Score, ScoredRun, read_score, read_scored
from adafuse.metrics.selection import SELECTIONS, is_oracle
from adafuse.report.tables import Table
from adafuse.workflow.layout import ResultsLayout

MACRO_AVERAGE = "macro average"
"""Stands for a benchmark where a point is the mean of a run's scores on all of them."""


@dataclass(frozen=True, slots=True)
class RunName:
    """A run as figures name it; `selection` says by what it chose between other runs.

    `selection` is "oracle" (by the answers of the very rows it is scored on), "development" (by
    other rows) or empty.
    """

    run: str
    method: str
    models: str
    selection: str

    @property
    def label(self) -> str:
        """The name, and what a reader must know of the selection."""
        return f"{self.run} ({self.selection})" if self.selection else self.run


@dataclass(frozen=True, slots=True)
class ScorePoint(RunName):
    """A score in percent with its 95 % interval; a macro average has neither interval nor n.

    `paper` is the value that the paper prints in row `paper_row` of its Table 1, in percent.
    """

    benchmark: str
    protocol: str
    metric: str
    n: int | None
    value: float
    low: float | None
    high: float | None
    paper: float | None
    paper_row: str


@dataclass(frozen=True, slots=True)
class SweepPoint(RunName):
    """A score in percent with its 95 % interval at `x`, the run's value of `option`."""

    benchmark: str
    protocol: str
    series: str
    option: str
    x: float
    metric: str
    n: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RuntimePoint(RunName):
    """Seconds per example over the `n` examples that did not end in an error.

    `mean_relative_to_members` is the mean divided by the sum of the means of the single
    models. `devices` has one entry per model; `timed` says that nothing else ran on the machine.
    """

    benchmark: str
    n: int
    failed: int
    seconds_median: float
    seconds_quartile_1: float
    seconds_quartile_3: float
    seconds_mean: float
    seconds_mean_low_bootstrap95: float
    seconds_mean_high_bootstrap95: float
    mean_relative_to_members: float | None
    batch_size: int
    dtype: str
    devices: str
    engine: str
    torch: str
    timed: bool


@dataclass(frozen=True, slots=True)
class WordsPoint(RunName):
    """The share of a run's rounds that committed `words` words, in percent.

    See `adafuse.report.measures.WordShare`.
    """

    benchmark: str
    words: int
    rounds: int
    n: int
    share: float
    low: float
    high: float
    wordless: int


@dataclass(frozen=True, slots=True)
class DifferencePoint(RunName):
    """Run minus `against` in points with its 95 % interval, and the p-values of the paired test.

    See `adafuse.metrics.compare.Comparison`; `p_holm` is adjusted for all pairs of the
    benchmark under the protocol.
    """

    benchmark: str
    protocol: str
    metric: str
    n: int
    against: str
    against_label: str
    difference: float
    difference_low: float
    difference_high: float
    test: str
    p: float
    p_holm: float
    significant: bool


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

    def scored(self, protocol: str, benchmark: str, run: str) -> ScoredRun:
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
    check_published(config)
    return Experiment(config, name, config.experiments[name])


def points_table(points: Sequence[RunName]) -> Table:
    """Return a row per point; a column that a point does not have is empty."""
    names = list(dict.fromkeys(name for point in points for name in _columns(point)))
    return Table(names, [[getattr(point, name, None) for name in names] for point in points])


def _columns(point: RunName) -> list[str]:
    """Benchmark and protocol come first; what only figures need is left out."""
    names = [field.name for field in fields(point) if field.name != "against_label"]
    first = [name for name in ("benchmark", "protocol") if name in names]
    return first + [name for name in names if name not in first]
