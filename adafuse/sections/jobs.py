"""The sections `decode` and `cluster`: how decode jobs run, and what they ask a cluster for."""

from typing import Annotated, Literal

from pydantic import Field

from adafuse.methods.options import BatchSize
from adafuse.sections.section import Count, Flag, Section, Text
from adafuse.told import told


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
