"""`best_pair` and `development_pair`: the ensemble of the two best models ("top-2", Table 1)."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated

from pydantic import Field

from adafuse.errors import UserError
from adafuse.methods.options import MethodOptions
from adafuse.selection.selection import Evidence, Selection
from adafuse.told import told


class PairOptions(MethodOptions):
    """What is chosen between."""

    runs: Annotated[
        Annotated[list[str], Field(min_length=1)],
        told("the ensembles of two to choose between, one for every pair of the models"),
    ]


class BestPair(Selection[PairOptions]):
    """Takes the pair of models that score highest alone on the benchmark itself."""

    name = "best_pair"
    Options = PairOptions
    oracle = True

    def candidates(self, alone: Sequence[str]) -> list[str]:
        """Return the ensembles of two."""
        return list(self.options.runs)

    def choose(
        self,
        models: Sequence[str],
        evidence: Sequence[Evidence],
        candidates: Sequence[Sequence[str]],
    ) -> int:
        """Return the candidate of the two models with the highest scores; the earlier of equals."""
        by_score = sorted(range(len(models)), key=lambda number: -evidence[number].score)
        best = {models[number] for number in by_score[:2]}
        return next(number for number, pair in enumerate(candidates) if set(pair) == best)

    def check(self, models: Sequence[str], candidates: Mapping[str, Sequence[str]]) -> None:
        """Refuse anything but one ensemble per pair of the models."""
        found = {frozenset(pair): name for name, pair in candidates.items()}
        for pair in combinations(models, 2):
            if frozenset(pair) not in found:
                raise UserError(
                    f"no run among {list(candidates)} has the models {pair[0]} and {pair[1]}; add"
                    " one, for they may be the two best"
                )
        for name, members in candidates.items():
            if len(members) != 2 or not set(members) <= set(models):
                raise UserError(f"run {name!r} is no pair of {list(models)}; remove it from `runs`")


class DevelopmentPair(BestPair):
    """Takes the pair that scores highest alone on the benchmark's development rows."""

    name = "development_pair"
    oracle = False
    development = True
