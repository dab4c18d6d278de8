"""The section `experiments`."""

from typing import Annotated, Literal

from pydantic import Field

from adafuse.sections.section import Section, Text
from adafuse.told import told


class ExperimentConfig(Section):
    """A table or figure of the paper: some runs on some benchmarks, and what is drawn of them.

    `kind` is what is measured: scores of the runs; a sweep of scores over an option's values
    (`options`: the runs' names for it); seconds per example; words per round; or scores with paired
    tests between all the runs. `published` maps runs to rows of Table 1 in the paper's numbers.
    """

    title: Annotated[Text, told("above the figure")]
    kind: Annotated[
        Literal["scores", "sweep", "runtime", "words_per_round", "paired"],
        told(
            "`scores`; `sweep` (scores over the values of an option); `runtime` (seconds per"
            " example); `words_per_round`; `paired` (scores, and tests of all runs against each"
            " other)"
        ),
    ]
    benchmarks: Annotated[
        Annotated[tuple[Text, ...], Field(min_length=1)],
        told("names of `benchmarks`; for `runtime`, those of one `batch_size`"),
    ]
    runs: Annotated[
        Annotated[tuple[Text, ...], Field(min_length=1)],
        told("names of `runs`; `paired` needs two"),
    ]
    options: Annotated[
        tuple[Text, ...],
        told(
            "for `sweep`: the options on the axis; each run has exactly one of them, a number, and"
            " no two runs the same with all else equal",
            "the experiment is a `sweep`",
        ),
    ] = ()
    published: Annotated[
        dict[str, Text],
        told(
            "for `scores`: runs and the rows of the paper's Table 1 to show beside them",
            "you reproduce that table",
        ),
    ] = Field(default_factory=dict)
