"""What reproducing the paper would take: estimates from config/paper.yaml, model sizes assumed."""

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import chdir
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from snakemake.utils import update_config

from adafuse.config.config import Config
from adafuse.config.reading import read_config, read_values
from adafuse.methods import METHODS
from adafuse.models.files import item_bytes
from adafuse.workflow.choose import ballot
from adafuse.workflow.jobs import (
    ASSUMED_PARAMETERS,
    START_MINUTES,
    decode_job,
    least_seconds,
    loaded,
    memory_mb,
    runtime,
)
from tools.docs.tables import table

ROWS = {
    "natural_questions": 3610,
    "squad": 10570,
    "triviaqa": 7993,
    "gsm8k": 1319,
    "flores_en_de": 1012,
    "flores_de_en": 1012,
}
"""Rows of the benchmarks on the hub (docs/benchmarks.md); others have a `sample`."""

Cell = tuple[str, str]
"""A benchmark and a run."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Decode jobs, their rows, the GPU hours that they ask for, and those without any margin."""

    jobs: int = 0
    rows: int = 0
    asked: float = 0.0
    bare: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.jobs + other.jobs,
            self.rows + other.rows,
            self.asked + other.asked,
            self.bare + other.bare,
        )

    def cells(self) -> tuple[str, ...]:
        """Return the figures for a table."""
        return (f"{self.jobs:,}", f"{self.rows:,}", f"{self.asked:,.0f}", f"{self.bare:,.1f}")


_HEAD = ("decode jobs", "rows", "GPU hours asked for", "GPU hours without margin")


def estimates_table() -> str:
    """Return what each table and figure costs when it alone is made."""
    config = _config()
    cells = {name: _cells(config, e.benchmarks, e.runs) for name, e in config.experiments.items()}
    rows = [(f"`{name}`", *_cost(config, each).cells()) for name, each in cells.items()]
    return table(("target", *_HEAD), rows)


def totals_table() -> str:
    """Return what everything costs, by benchmark: what targets share is decoded once."""
    config = _config()
    wanted = _everything(config)
    rows = []
    for benchmark, task in config.benchmarks.items():
        cost = _cost(config, [cell for cell in wanted if cell[0] == benchmark])
        minutes = max(_minutes(config, cell) for cell in wanted if cell[0] == benchmark)
        tokens = str(task.max_new_tokens)
        rows.append((f"`{benchmark}`", tokens, *cost.cells(), f"{minutes / 60:,.1f}"))
    longest = f"{max(_minutes(config, cell) for cell in wanted) / 60:,.1f}"
    rows.append(("all", "", *_cost(config, wanted).cells(), longest))
    return table(("benchmark", "tokens a row", *_HEAD, "hours of the longest job"), rows)


def served_table() -> str:
    """Return how many of all jobs need a GPU where models are on servers, and what these cost."""
    config = _config("served.yaml")
    wanted = _everything(config)
    jobs = {cell: decode_job(config, *cell) for cell in wanted}
    loading = [cell for cell in wanted if loaded(jobs[cell])]
    others = _cost(config, {*wanted} - {*loading})
    none = Cost(others.jobs, others.rows).cells()
    return table(
        ("", *_HEAD), [("load models", *_cost(config, loading).cells()), ("use servers", *none)]
    )


def hours_of_starts() -> str:
    """Return how many of the GPU hours that are asked for are for the start of jobs."""
    return f"{_cost(_config(), _everything(_config())).jobs * START_MINUTES / 60:,.0f}"


def days(gpus: int) -> str:
    """Return from and to how many days everything takes on some GPUs."""
    cost = _cost(_config(), _everything(_config()))
    low, high = (hours / gpus / 24 for hours in (cost.bare, cost.asked))
    return f"{low:.1f} to {high:.0f} days"


def memory() -> int:
    """Return the gigabytes of memory that the largest job asks for."""
    config = _config()
    most = max(memory_mb(_weights(config, cell), 1) for cell in _everything(config))
    return math.ceil(most / 1000)


@cache
def _config(*above: str) -> Config:
    root = Path(__file__).parents[2]
    with chdir(root):  # its paths are relative to the checkout
        values: dict[str, Any] = {}
        for name in ("paper.yaml", *above):
            update_config(values, read_values(root / "config" / name, "configuration", name))
        with NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(values, file)
            file.flush()
            return read_config(Path(file.name))


def _everything(config: Config) -> list[Cell]:
    cells = set(_cells(config, config.main_benchmarks, config.main_runs))
    for experiment in config.experiments.values():
        cells |= set(_cells(config, experiment.benchmarks, experiment.runs))
    return sorted(cells)


def _cells(config: Config, benchmarks: Iterable[str], runs: Iterable[str]) -> list[Cell]:
    """Return what is decoded for some runs on some benchmarks."""
    pairs = product(benchmarks, runs)
    return sorted({cell for pair in pairs for cell in _needed(config, *pair)})


def _needed(config: Config, benchmark: str, run: str) -> Iterator[Cell]:
    """Yield the run itself and what it starts from, or what it chooses between and by."""
    spec = config.runs[run]
    if spec.method in METHODS:
        yield benchmark, run
        if METHODS[spec.method].reads_answers:
            yield from ((benchmark, each) for each in config.single_model_runs(spec))
    else:
        choice = ballot(config, benchmark, run)
        yield from choice.evidence
        yield from ((benchmark, each) for each in choice.candidates)


def _cost(config: Config, cells: Iterable[Cell]) -> Cost:
    return sum((_cell_cost(config, cell) for cell in cells), Cost())


def _cell_cost(config: Config, cell: Cell) -> Cost:
    shards, rows = config.benchmarks[cell[0]].shards, _rows(config, cell[0])
    hours = shards * _minutes(config, cell) / 60
    return Cost(shards, rows, hours, _bare_seconds(config, cell) / 3600)


def _rows(config: Config, benchmark: str) -> int:
    sample = config.benchmarks[benchmark].sample
    return ROWS[benchmark] if sample is None else sample.size


def _minutes(config: Config, cell: Cell) -> int:
    """Return the minutes that the first attempt of one of the jobs asks for."""
    shard = math.ceil(_rows(config, cell[0]) / config.benchmarks[cell[0]].shards)
    return runtime(decode_job(config, *cell), _weights(config, cell), shard, 1)


def _bare_seconds(config: Config, cell: Cell) -> float:
    """Return the seconds of decoding on a GPU without any margin."""
    weights = _weights(config, cell)
    return least_seconds(decode_job(config, *cell), weights, _rows(config, cell[0]), 1)


def _weights(config: Config, cell: Cell) -> list[float]:
    """Return the bytes of each model, as the estimator assumes them where none is at hand."""
    job = decode_job(config, *cell)
    return [
        ASSUMED_PARAMETERS * item_bytes(model.dtype, model.quantization) for model in loaded(job)
    ]
