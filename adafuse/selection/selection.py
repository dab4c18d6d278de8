"""What a selection is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from adafuse.methods.options import MethodOptions

OptionsT = TypeVar("OptionsT", bound=MethodOptions)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The score of a model alone, and the value of each example behind it by id."""

    score: float
    values: Mapping[str, float]


class Selection(ABC, Generic[OptionsT]):
    """Chooses between runs with evidence from the models' runs alone.

    `name` is what users write as a run's method. An `oracle` has seen the answers of the very rows
    that it chooses for: an upper bound, not a method. One that uses `development` rows chooses by
    the scores on another benchmark.
    """

    name: ClassVar[str]
    Options: ClassVar[type[MethodOptions]]
    oracle: ClassVar[bool]
    development: ClassVar[bool] = False

    def __init__(self, options: OptionsT) -> None:
        self.options = options

    @abstractmethod
    def candidates(self, alone: Sequence[str]) -> list[str]:
        """Return the runs to choose between; `alone` are the runs of the models alone."""

    @abstractmethod
    def choose(
        self,
        models: Sequence[str],
        evidence: Sequence[Evidence],
        candidates: Sequence[Sequence[str]],
    ) -> int | dict[str, int]:
        """Return the number of the chosen candidate, or that of each example by id.

        Args:
            models: names, in the order of the run.
            evidence: one per model.
            candidates: the models of each candidate.
        """

    def check(self, models: Sequence[str], candidates: Mapping[str, Sequence[str]]) -> None:
        """Refuse candidates that some choice would need and the configuration lacks.

        Args:
            models: names, in the order of the run.
            candidates: the models of each candidate by name.

        Raises:
            UserError: one is missing, or of another kind.
        """
