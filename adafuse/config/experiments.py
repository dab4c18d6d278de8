"""The sections `main` and `experiments`: what is shown of the runs."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from adafuse.errors import unknown
from adafuse.options import Identifier, Section, Text, different

WHOLE_PAPER = ("paper", "paper_toy")
"""Targets that make all experiments; the toy configuration's documentation uses the second."""

DifferentNames = Annotated[tuple[Identifier, ...], AfterValidator(different)]
SomeNames = Annotated[DifferentNames, Field(min_length=1)]


class MainConfig(Section):
    """What the main table and the comparisons show; all runs on all benchmarks by default."""

    runs: DifferentNames | None = None
    """names of `runs`; change it when some runs do not belong in the main table"""
    benchmarks: DifferentNames | None = None
    """names of `benchmarks`; change it when some benchmarks are only development or timing rows"""
    study: DifferentNames = ()
    """names of `runs` that are variants, such as one method with several options: none of them is
    a baseline of another; change it when your runs vary one method"""
    margin: Annotated[float, Field(gt=0, lt=100, strict=True)] = 1.0
    """in points: a run that is shown to be worse by less than this counts as not inferior
    ([docs/scoring.md](../docs/scoring.md#as-good-as-the-best-member)); choose it before you see
    results; change it when you need another bound"""


class ExperimentConfig(Section):
    """A table or figure of the paper: some runs on some benchmarks, and what is drawn of them."""

    title: Text
    """title of the figure"""
    kind: Literal["scores", "sweep", "runtime", "words_per_round", "paired", "frontier", "gates"]
    """`scores`; `sweep` (scores over an option's values); `runtime` (seconds per example);
    `words_per_round`; `paired` (scores, and tests of all runs against each other); `frontier`
    (scores against forward passes); `gates` (what gates learned, and how far to trust them)"""
    benchmarks: SomeNames
    """names of `benchmarks`; for `runtime`, all of one `batch_size`"""
    runs: SomeNames
    """names of `runs`; `paired` needs at least two"""
    options: tuple[Text, ...] = ()
    """for `sweep`: the swept option, or several if methods name it differently; each run has
    exactly one, a number, and no two runs are the same; change it when the experiment is a
    `sweep`"""
    published: dict[str, Text] = Field(default_factory=dict)
    """for `scores`: the row of the paper's numbers for each run; change it when you reproduce it"""

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if (self.kind == "sweep") != bool(self.options):
            raise ValueError(
                f"options is {list(self.options)}; name the swept options for kind sweep, and none"
                " for another kind"
            )
        if self.kind == "paired" and len(self.runs) < 2:
            raise ValueError(
                f"kind paired tests pairs of runs, but {list(self.runs)} is only one; name at"
                " least two"
            )
        if self.published and self.kind != "scores":
            raise ValueError(f"published is for kind scores, not for {self.kind}; remove it")
        for run in self.published:
            if run not in self.runs:
                raise ValueError(f"published: {unknown('run', run, list(self.runs))}")
        return self
