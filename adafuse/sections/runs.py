"""The sections `runs` and `main`."""

from typing import Annotated, Any

from pydantic import Field

from adafuse.sections.section import Count, Number, Section, Text, Weight
from adafuse.told import told


class JobSize(Section):
    """What the decode jobs of a run ask a cluster for, instead of an estimate."""

    gpu: Annotated[
        Number | None, told("GPUs of a job, instead of the count", "the run needs more or fewer")
    ] = None
    mem_mb: Annotated[
        Count | None,
        told("megabytes of the first attempt, instead of the estimate", "the estimate is off"),
    ] = None
    runtime: Annotated[
        Count | None,
        told("minutes of the first attempt, instead of the estimate", "the estimate is off"),
    ] = None


class RunConfig(Section):
    """A method with its options on an ordered list of models."""

    method: Annotated[
        Text,
        told(
            "one of `adafuse methods`, or a choice between other runs: `best_of`, `best_pair`,"
            " `development_pair`"
        ),
    ]
    models: Annotated[
        Annotated[tuple[Text, ...], Field(min_length=1)],
        told("names of `models`, in order"),
    ]
    weights: Annotated[
        tuple[Weight, ...] | None,
        told(
            "one per model; all 1 without it; refused for `llm_blender` and choices between runs,"
            " which weigh nothing",
            "one model is to be trusted more",
        ),
    ] = None
    options: Annotated[
        dict[str, Any],
        told(
            "those of the method, for instance `tau`, `max_words`, `branching`, `fusion`; see"
            " `adafuse methods` or [docs/methods.md](../docs/methods.md#options)",
            "the method's defaults are not what you want",
        ),
    ] = Field(default_factory=dict)
    max_rounds: Annotated[
        Count | None,
        told(
            "ends an answer after that many rounds; not for choices between runs",
            "the count of decisions is to be limited, not that of tokens",
        ),
    ] = None
    cluster: Annotated[
        JobSize,
        told(
            "what the jobs of this run ask for, instead of estimates",
            "one run needs more than the others",
        ),
    ] = JobSize()


class MainConfig(Section):
    """What the main table and the comparisons show; all runs on all benchmarks by default."""

    runs: Annotated[
        tuple[Text, ...] | None, told("names of `runs`", "some runs belong elsewhere")
    ] = None
    benchmarks: Annotated[
        tuple[Text, ...] | None,
        told("names of `benchmarks`", "some benchmarks only serve others"),
    ] = None
