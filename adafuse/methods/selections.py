"""Runs that decode nothing: they choose between what other runs wrote, by scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from adafuse.errors import UserError
from adafuse.options import MethodOptions, different, parse

Names = Sequence[str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The score of a single model's run, and the value of each example by id; higher is better."""

    score: float
    values: Mapping[str, float]


class Selection:
    """Chooses between runs with evidence from the runs of single models.

    `name` is what users write as a run's method. An `oracle` has seen the answers of the very rows
    that it chooses for, and goes by strict scores: an upper bound of these, not a method. One that
    uses `development` rows chooses by the scores on another benchmark.
    """

    name: ClassVar[str]
    Options: ClassVar[type[MethodOptions]] = MethodOptions
    oracle: ClassVar[bool] = True
    development: ClassVar[bool] = False

    def __init__(self, options: Any) -> None:
        self.options = options

    def candidates(self, single_runs: Names) -> list[str]:
        """Return the runs to choose between; by default those of the single models."""
        return list(single_runs)

    def choose(
        self, models: Names, evidence: Sequence[Evidence], candidates: Sequence[Names]
    ) -> int | dict[str, int]:
        """Return the number of the chosen candidate, by its models, or that of each example."""
        raise NotImplementedError

    def check(self, models: Names, candidates: Mapping[str, Names]) -> None:
        """Raise a `UserError` if a candidate is missing or has the wrong models."""


class BestOf(Selection):
    """Takes the first model's answer unless another one's scores higher (BLEU: of the sentence)."""

    name = "best_of"

    def choose(
        self, models: Names, evidence: Sequence[Evidence], candidates: Sequence[Names]
    ) -> dict[str, int]:
        """Return for every example the model whose answer has the highest value."""
        numbers = range(len(evidence))
        return {
            row: max(numbers, key=lambda number: evidence[number].values[row])
            for row in evidence[0].values
        }


class PairOptions(MethodOptions):
    """What is chosen between."""

    runs: Annotated[list[str], Field(min_length=1), AfterValidator(different)]
    """runs with two models to choose from, one for every pair of the models"""


class BestPair(Selection):
    """Takes the pair of models with the highest single-model scores on the benchmark itself."""

    name = "best_pair"
    Options = PairOptions

    def candidates(self, single_runs: Names) -> list[str]:
        """Return the ensembles of two."""
        return list(self.options.runs)

    def choose(
        self, models: Names, evidence: Sequence[Evidence], candidates: Sequence[Names]
    ) -> int:
        """Return the candidate of the two models with the highest scores; the earlier of equals."""
        by_score = sorted(range(len(models)), key=lambda number: -evidence[number].score)
        best = {models[number] for number in by_score[:2]}
        return next(number for number, pair in enumerate(candidates) if set(pair) == best)

    def check(self, models: Names, candidates: Mapping[str, Names]) -> None:
        """Refuse anything but one ensemble per pair of the models."""
        pairs = dict[frozenset[str], str]()
        for name, pair in candidates.items():
            if (first := pairs.setdefault(frozenset(pair), name)) != name:
                raise UserError(
                    f"runs {first!r} and {name!r} have the same models, and only one of them would"
                    " be chosen; leave one of them in `runs`"
                )
        for one, other in combinations(models, 2):
            if frozenset((one, other)) not in pairs:
                raise UserError(
                    f"no run among {list(candidates)} has the models {one} and {other}; add one,"
                    " for they may be the two best"
                )
        for name, members in candidates.items():
            if len(members) != 2 or not set(members) <= set(models):
                raise UserError(
                    f"run {name!r} is not a pair of {list(models)}; remove it from `runs`"
                )


class DevelopmentPair(BestPair):
    """Takes the pair with the highest single-model scores on the benchmark's development rows."""

    name = "development_pair"
    oracle = False
    development = True


class CertifiedOptions(MethodOptions):
    """What is certified, and how."""

    runs: Annotated[list[str], Field(min_length=1), AfterValidator(different)]
    """runs to choose from, besides the single models, the most preferred one first; with `order:
    sequence` from the safest to the boldest, and single models only if they are listed"""
    order: Literal["preference", "sequence", "half"] = "preference"
    """`preference`: the first certified one (Holm's correction for testing all); `sequence`: tested
    in order, each at `alpha`, until one fails, and the last one before it is taken; `half`: the one
    that is best on half of the rows, tested on the others"""
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """the chance of a wrong certificate that is accepted"""


class Certified(Selection):
    """Takes a run that rows of another benchmark certify to be as good as the best model.

    "As good" means less than `main: {margin}` points below it, in a test that is wrong with a
    chance of at most `alpha`. Without any such run it takes the model that leads on these rows, and
    says so.
    """

    name = "certified"
    Options = CertifiedOptions
    oracle = False
    development = True

    def candidates(self, single_runs: Names) -> list[str]:
        """Return the runs that are listed, then the single models that are not."""
        listed: list[str] = self.options.runs
        others = [] if self.options.order == "sequence" else single_runs
        return [*dict.fromkeys([*listed, *others])]

    def check(self, models: Names, candidates: Mapping[str, Names]) -> None:
        """Refuse runs with other models, whose score nothing here is compared with."""
        for name, members in candidates.items():
            if others := set(members) - set(models):
                raise UserError(
                    f"run {name!r} has model {min(others)!r}, which is not among {list(models)};"
                    " add it to `models`, or remove the run from `runs`"
                )


SELECTIONS: dict[str, type[Selection]] = {
    selection.name: selection for selection in (BestOf, BestPair, DevelopmentPair, Certified)
}


def selection(name: str, options: Mapping[str, Any]) -> Selection:
    """Return the selection `name`; raise a `UserError` for an option that it does not have."""
    chosen = SELECTIONS[name]
    return chosen(parse(chosen.Options, options, f"method {name}"))


def is_oracle(method: str) -> bool:
    """Say whether a method has seen the answers."""
    return method in SELECTIONS and SELECTIONS[method].oracle
