"""Where the workflow's files lie, for the rules: patterns and lists of them."""

import re
from collections.abc import Iterable
from itertools import product

from adafuse.config.config import Config

TRACE_KINDS = ("runtime", "words_per_round")
"""Experiments that read traces; the others read scores."""


def one_of(names: Iterable[str]) -> str:
    """Return a pattern for exactly these names; for nothing at all if there are none."""
    return "|".join(map(re.escape, names)) or "(?!)"


def trace_paths(config: Config, benchmarks: Iterable[str], runs: Iterable[str]) -> list[str]:
    """Return the merged traces of runs on benchmarks."""
    pairs = product(benchmarks, runs)
    return [f"{config.results}/traces/{name}/{run}.parquet" for name, run in pairs]


def score_paths(
    config: Config, benchmarks: Iterable[str], runs: Iterable[str], suffix: str = ".json"
) -> list[str]:
    """Return the scores of runs on benchmarks under every protocol, or what lies beside them."""
    cells = product(config.protocols, benchmarks, runs)
    return [f"{config.results}/scores/{each}/{name}/{run}{suffix}" for each, name, run in cells]


def experiment_inputs(config: Config, name: str) -> list[str]:
    """Return what an experiment reads."""
    experiment = config.experiments[name]
    benchmarks, runs = experiment.benchmarks, experiment.runs
    if experiment.kind in TRACE_KINDS:
        return trace_paths(config, benchmarks, runs)
    outcomes = score_paths(config, benchmarks, runs, ".outcomes.parquet")
    return [*score_paths(config, benchmarks, runs), *outcomes]


def experiment_outputs(config: Config, names: Iterable[str]) -> list[str]:
    """Return the numbers and figures of experiments."""
    pairs = product(names, ("csv", "svg", "png"))
    return [f"{config.results}/experiments/{name}.{suffix}" for name, suffix in pairs]
