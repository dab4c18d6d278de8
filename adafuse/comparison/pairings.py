"""Who is compared with whom: ensembles with members and the best baseline, or all with all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from adafuse.methods.selections import SELECTIONS, is_oracle

OURS = frozenset({"adafuse"})
"""Methods that are no baseline, however their options are set."""

Runs = Mapping[str, tuple[str, Sequence[str]]]
"""Method and models of each run by its name, in the order of the configuration."""

Role = Literal["member", "best baseline", "other run"]


@dataclass(frozen=True, slots=True)
class Pairing:
    """A run and the run that it is compared with; `role` is what the other one is to it."""

    run: str
    against: str
    role: Role

    @property
    def hypothesis(self) -> frozenset[str]:
        """The two runs in no order: what is tested, whichever way it is told."""
        return frozenset((self.run, self.against))


def is_baseline(method: str) -> bool:
    """Say whether a method is a baseline: every one is, except those in `OURS` and selections."""
    return method not in OURS and method not in SELECTIONS


def pairings(runs: Runs, values: Mapping[str, float]) -> list[Pairing]:
    """Return the comparisons of one benchmark.

    Args:
        runs: all runs.
        values: scores of those that have one; a run without one takes no part.
    """
    present = {name: run for name, run in runs.items() if name in values}
    return [
        pairing
        for name, (method, models) in present.items()
        if len(models) > 1 and not is_oracle(method)
        for pairing in (*_members(present, name), *_best_baseline(present, name, values))
    ]


def all_pairs(values: Mapping[str, float]) -> list[Pairing]:
    """Return each run of `values` with every later one."""
    return [Pairing(run, other, "other run") for run, other in combinations(values, 2)]


def members_alone(runs: Runs, models: Sequence[str]) -> list[str]:
    """Return the runs that are one of `models` on its own, in the order of the models."""
    alone = [(name, run[1][0]) for name, run in runs.items() if run[0] == "single"]
    return [name for model in models for name, used in alone if used == model]


def models_never_alone(runs: Runs) -> dict[str, list[str]]:
    """Return, for each ensemble that has any, its models without a run of method `single`."""
    lacking = {
        name: [model for model in dict.fromkeys(models) if not members_alone(runs, [model])]
        for name, (_, models) in runs.items()
        if len(models) > 1
    }
    return {name: models for name, models in lacking.items() if models}


def _members(runs: Runs, name: str) -> list[Pairing]:
    models = list(dict.fromkeys(runs[name][1]))
    return [Pairing(name, other, "member") for other in members_alone(runs, models)]


def _best_baseline(runs: Runs, name: str, values: Mapping[str, float]) -> list[Pairing]:
    others = [other for other, run in runs.items() if other != name and is_baseline(run[0])]
    # Of equals the first in the configuration.
    best = max(others, key=values.__getitem__, default=None)
    return [] if best is None else [Pairing(name, best, "best baseline")]
