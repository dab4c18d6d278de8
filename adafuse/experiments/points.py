"""What an experiment measured, one record per point; each list of them is a CSV file."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

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

    `mean_relative_to_members` is the mean divided by the sum of the means of the run's models
    alone. `devices` has one entry per model; `timed` says that nothing else ran on the machine.
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

    See `adafuse.comparison.words_per_round.WordShare`.
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

    See `adafuse.comparison.compare.Comparison`; `p_holm` is adjusted for all pairs of the
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


def to_csv(points: Sequence[RunName]) -> str:
    """Return a row per point; a column that a point does not have is empty.

    Percent and points have four decimals, seconds six, p-values four digits.
    """
    names = list(dict.fromkeys(name for point in points for name in _columns(point)))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for point in points:
        writer.writerow([_cell(name, getattr(point, name, None)) for name in names])
    return text.getvalue()


def _columns(point: RunName) -> list[str]:
    """Benchmark and protocol lead; what only serves the drawing stays out."""
    names = [field.name for field in fields(point) if field.name != "against_label"]
    first = [name for name in ("benchmark", "protocol") if name in names]
    return first + [name for name in names if name not in first]


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    if name in ("p", "p_holm"):
        return f"{value:.4g}"
    if name == "x":
        return repr(value)
    return f"{value:.6f}" if name.startswith("seconds") else f"{value:.4f}"
