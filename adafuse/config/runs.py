"""The sections `models`, `runs`, `main`, `experiments`, `decode` and `cluster`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from adafuse.config.fields import Count, Flag, Number, Section, Text, Weight
from adafuse.decoding.options import BatchSize, told
from adafuse.models.spec import ModelEntry


class ModelConfig(Section, ModelEntry):
    """A folder or hub id, and how the model is loaded, prompted and placed."""


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


class DecodeConfig(Section):
    """How decode jobs run. `device` and `gpu` are places, not part of a result's identity.

    `max_error_share` is the part of a shard's rows that may fail before the job does.

    `dtype` has no "auto": the same configuration must mean the same numbers on every machine.
    """

    engine: Annotated[
        Literal["tree", "reference"],
        told("`tree`, or `reference`: slow, plain, for checking", "you doubt a result"),
    ] = "tree"
    batch_size: Annotated[
        BatchSize,
        told(
            "examples decoded at a time; `auto`: as many as fit into the memory that is free",
            "memory runs out, or a GPU is not busy",
        ),
    ] = 16
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        told("numbers that the models compute with", "they run on a GPU: `bfloat16`"),
    ] = "float32"
    device: Annotated[
        Text,
        told(
            "of all models that name none of their own: `auto`, `cpu`, `cuda:0`, `cuda:0+cuda:1`,"
            " `balanced`, `sequential` ([what they mean](#a-model-larger-than-one-gpu))",
            "models are to run elsewhere",
        ),
    ] = "auto"
    gpu: Annotated[
        Annotated[int, Field(ge=0, strict=True)],
        told(
            "the most GPUs that a decode job asks the scheduler for",
            "0 for models that run on a CPU; 2 where each of two models on `auto` is to have one;"
            " as many as its largest model is spread over; a run may have a number of its own"
            " (`cluster.gpu`)",
        ),
    ] = 1
    max_error_share: Annotated[
        Annotated[float, Field(ge=0, le=1, strict=True)],
        told(
            "the part of a shard's rows that may fail; more of them fail the job, and the others"
            " are kept",
            "a few rows are known to be too long, or none may fail (`0`)",
        ),
    ] = 0.1


class ClusterConfig(Section):
    """What decode jobs ask a cluster for: megabytes, minutes, and the most of both.

    `uniform` has all ask for what the largest of them needs, as the tasks of an array must.
    """

    mem_mb: Annotated[
        Count | None,
        told(
            "megabytes of the first attempt, instead of the estimate",
            "jobs wait long for what they do not need, or end at a limit",
        ),
    ] = None
    runtime: Annotated[
        Count | None,
        told(
            "minutes of the first attempt, instead of the estimate",
            "jobs wait long for what they do not need, or end at a limit",
        ),
    ] = None
    max_mem_mb: Annotated[
        Count | None,
        told("the most megabytes that any attempt asks for", "the partition refuses more"),
    ] = None
    max_runtime: Annotated[
        Count | None,
        told("the most minutes that any attempt asks for", "the partition refuses more"),
    ] = None
    uniform: Annotated[
        Flag,
        told("all jobs ask for what the largest needs", "decode jobs are submitted as arrays"),
    ] = False
