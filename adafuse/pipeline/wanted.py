"""Which runs on which benchmarks the targets of a configuration need decoded."""

from collections.abc import Iterator
from itertools import product

from adafuse.pipeline.plan import Plan

Cell = tuple[str, str]
"""A benchmark and a run."""


def all_cells(plan: Plan) -> list[Cell]:
    """Return everything that can be decoded, in the order of the configuration."""
    return list(product(plan.benchmarks, plan.decoded_runs))


def wanted_cells(plan: Plan) -> list[Cell]:
    """Return what plain `snakemake` decodes, in the order of the configuration.

    That is the main table, the experiments if they are targets, and what these start from or
    choose by.
    """
    found: set[Cell] = set()
    waiting = list(_asked(plan))
    while waiting:
        cell = waiting.pop()
        if cell not in found:
            found.add(cell)
            waiting += _needed(plan, *cell)
    return [cell for cell in all_cells(plan) if cell in found]


def _asked(plan: Plan) -> Iterator[Cell]:
    yield from product(plan.main_benchmarks, plan.main_runs)
    if "experiments" in plan.config.targets:
        for experiment in plan.config.experiments.values():
            yield from product(experiment.benchmarks, experiment.runs)


def _needed(plan: Plan, benchmark: str, run: str) -> list[Cell]:
    if run in plan.chosen_runs:
        choices = plan.ballot(benchmark, run)
        return [*product([benchmark], choices.candidates), *choices.evidence]
    return [(benchmark, each) for each in plan.answer_runs(run)]
