"""The average difference between two settings over cells: several ensembles on several benchmarks.

    python -m tools.pooled results/disagreement {}_bytes_b3 {}_bytewise --ensembles ml mq \
        --benchmarks toy_qa toy_math

The ensembles answer the same rows, so a row is resampled, or its two answers are swapped, in all of
them at once. The interval holds the middle 95 % of the resampled averages; p is that of approximate
randomization, as `adafuse.metrics.paired.paired_randomization` has it for a single cell.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from adafuse.metrics.intervals import RESAMPLES
from adafuse.metrics.paired import SEED, PerRow
from adafuse.metrics.score import ScoredRun, read_scored
from adafuse.metrics.scorer import Metric
from adafuse.workflow.layout import ResultsLayout

Cells = Mapping[str, tuple[Metric, PerRow, PerRow]]
"""By benchmark its metric and what its score is made of, for both settings, with the shape
[ensembles, rows, ...]."""


def pooled(cells: Cells) -> tuple[float, float, float, float]:
    """Return the average of first minus second over all cells, its interval, and p."""
    draw = np.random.default_rng(SEED)
    observed = _average(cells)
    resampled, reached = list[float](), 0
    for _ in range(RESAMPLES):
        drawn, swapped = {}, {}
        for name, (metric, first, second) in cells.items():
            rows = draw.integers(first.shape[1], size=first.shape[1])
            drawn[name] = metric, first[:, rows], second[:, rows]
            swap = draw.random((1, first.shape[1], *[1] * (first.ndim - 2))) < 0.5
            swapped[name] = metric, np.where(swap, second, first), np.where(swap, first, second)
        resampled.append(_average(drawn))
        reached += abs(_average(swapped)) >= abs(observed) - 1e-9
    low, high = np.quantile(resampled, (0.025, 0.975)).tolist()
    return observed, low, high, (reached + 1) / (RESAMPLES + 1)


def _average(cells: Cells) -> float:
    return fmean(
        metric.pooled(one) - metric.pooled(other)
        for metric, first, second in cells.values()
        for one, other in zip(first, second, strict=True)
    )


def _rows(scored: Sequence[ScoredRun]) -> PerRow:
    """Return what the scores of several ensembles are made of, their rows in one order."""
    first = [outcome.id for outcome in scored[0].outcomes]
    tables = []
    for one in scored:
        by_id = {outcome.id: outcome for outcome in one.outcomes}
        tables.append(one.metric.rows([by_id[name] for name in first], one.score.protocol))
    return np.array(tables)


def main() -> None:
    """Print the average difference of two settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("first", help="name of a run, with {} for the ensemble")
    parser.add_argument("second")
    parser.add_argument("--ensembles", nargs="+", required=True)
    parser.add_argument("--benchmarks", nargs="+", required=True)
    parser.add_argument("--protocol", default="strict")
    given = parser.parse_args()
    layout, cells = ResultsLayout(given.results), {}
    for benchmark in given.benchmarks:
        scored = [
            [
                read_scored(layout.score(given.protocol, benchmark, pattern.format(name)))
                for name in given.ensembles
            ]
            for pattern in (given.first, given.second)
        ]
        rows = _rows([*scored[0], *scored[1]])
        count = len(given.ensembles)
        cells[benchmark] = scored[0][0].metric, rows[:count], rows[count:]
    observed, low, high, p = pooled(cells)
    sys.stdout.write(
        f"{given.first} - {given.second}: {observed:+.2f} [{low:+.2f}, {high:+.2f}], p = {p:.4f}\n"
    )


if __name__ == "__main__":
    main()
