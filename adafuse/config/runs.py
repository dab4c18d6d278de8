"""The sections `models`, `runs`, `decode` and `cluster`."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from adafuse.decoding.fusion import check_weights
from adafuse.errors import UserError, known
from adafuse.methods import METHODS, resolve
from adafuse.metrics.selection import SELECTIONS, selection
from adafuse.models.spec import AUTO, DeviceName, ModelEntry
from adafuse.options import (
    BatchSize,
    Flag,
    Number,
    Positive,
    Section,
    Text,
    doc,
    refusing,
)

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]


def _device(text: str) -> str:
    with refusing():
        DeviceName.parse(text)
    return text


Device = Annotated[Text, AfterValidator(_device)]
Names = Annotated[tuple[Text, ...], Field(min_length=1)]


class ModelConfig(ModelEntry):
    """A folder or hub id, and how the model is loaded, prompted and placed."""

    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str | None) -> str | None:
        with refusing():
            DeviceName.parse(value or AUTO)
        return value


class JobSize(Section):
    """What the decode jobs of a run ask a cluster for, instead of an estimate."""

    gpu: Annotated[Number | None, doc("GPUs of a job", "the run needs more or fewer")] = None
    mem_mb: Annotated[
        Positive | None, doc("megabytes of the first attempt", "the estimate is off")
    ] = None
    runtime: Annotated[
        Positive | None, doc("minutes of the first attempt", "the estimate is off")
    ] = None


class RunConfig(Section):
    """A method with its options on an ordered list of models."""

    replaced: ClassVar[tuple[str, ...]] = ("sweep",)

    method: Annotated[
        Text,
        doc(
            "one of `adafuse methods`, or a choice between other runs: `best_of`, `best_pair`,"
            " `development_pair`"
        ),
    ]
    models: Annotated[Names, doc("names of `models`, in order")]
    weights: Annotated[
        tuple[Weight, ...] | None,
        doc(
            "one per model; all 1 without it; refused where nothing is weighed (`llm_blender`,"
            " choices between runs)",
            "one model is to be trusted more",
        ),
    ] = None
    options: Annotated[
        dict[str, Any],
        doc(
            "those of the method, for instance `tau`, `max_words`, `branching`, `fusion`; see"
            " `adafuse methods` or [docs/methods.md](../docs/methods.md#options)",
            "the method's defaults are not what you want",
        ),
    ] = Field(default_factory=dict)
    max_rounds: Annotated[
        Positive | None,
        doc(
            "ends an answer after that many rounds; not for choices between runs",
            "decisions are to be limited, not tokens",
        ),
    ] = None
    cluster: Annotated[
        JobSize, doc("what its jobs ask for, instead of estimates", "it needs more than others")
    ] = JobSize()

    @model_validator(mode="after")
    def _fits_its_method(self) -> Self:
        with refusing():
            check_weights(self.weights, len(self.models))
            if self.method in METHODS:
                self._check_method()
            elif self.method in SELECTIONS:
                self._check_selection()
            else:
                raise UserError(known("method", self.method, [*METHODS, *SELECTIONS]))
        return self

    def _check_method(self) -> None:
        method = resolve(self.method, self.options)
        method.check_models(len(self.models))
        if self.weights is not None and not method.uses_models:
            raise UserError(
                f"weights {list(self.weights)} change nothing in method {self.method}, which does"
                " not weigh its models; remove them"
            )

    def _check_selection(self) -> None:
        selection(self.method, self.options)
        if len(self.models) < 2 or len(set(self.models)) < len(self.models):
            raise UserError(f"method {self.method} needs at least 2 different models")
        weights = None if self.weights is None else list(self.weights)
        for setting, value in (("weights", weights), ("max_rounds", self.max_rounds)):
            if value is not None:
                raise UserError(
                    f"{setting} {value} changes nothing in method {self.method}, which decodes"
                    " nothing itself; remove it"
                )


class DecodeConfig(Section):
    """How decode jobs run. `device` and `gpu` are places, not part of a result's identity.

    `max_error_share` is the part of a shard's rows that may fail before the job does.

    `dtype` has no "auto": the same configuration must mean the same numbers on every machine.
    """

    engine: Annotated[
        Literal["tree", "reference"],
        doc("`tree`, or `reference`: slow, plain, for checking", "you doubt a result"),
    ] = "tree"
    batch_size: Annotated[
        BatchSize,
        doc(
            "examples decoded at a time; `auto`: as many as fit into the free memory",
            "memory runs out, or a GPU is not busy",
        ),
    ] = 16
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        doc("numbers that the models compute with", "they run on a GPU: `bfloat16`"),
    ] = "float32"
    device: Annotated[
        Device,
        doc(
            "of models without their own: `auto`, `cpu`, `cuda:0`, `cuda:0+cuda:1`, `balanced`,"
            " `sequential` ([what they mean](#a-model-larger-than-one-gpu))",
            "models are to run elsewhere",
        ),
    ] = "auto"
    gpu: Annotated[
        Number,
        doc(
            "the most GPUs that a decode job asks for",
            "0 for models on a CPU; 2 where two models on `auto` get one each; as many as the"
            " largest model is spread over; `cluster.gpu` of a run goes first",
        ),
    ] = 1
    max_error_share: Annotated[
        Share,
        doc(
            "the part of a shard's rows that may fail before the job does; the others are kept",
            "a few rows are known to be too long, or none may fail (`0`)",
        ),
    ] = 0.1


class ClusterConfig(Section):
    """What decode jobs ask a cluster for: megabytes, minutes, and the most of both.

    `uniform` has all ask for what the largest of them needs, as the tasks of an array must.
    """

    mem_mb: Annotated[
        Positive | None,
        doc("megabytes of the first attempt, instead of the estimate", "the estimate is off"),
    ] = None
    runtime: Annotated[
        Positive | None,
        doc("minutes of the first attempt, instead of the estimate", "the estimate is off"),
    ] = None
    max_mem_mb: Annotated[
        Positive | None, doc("the most megabytes of any attempt", "the partition refuses more")
    ] = None
    max_runtime: Annotated[
        Positive | None, doc("the most minutes of any attempt", "the partition refuses more")
    ] = None
    uniform: Annotated[
        Flag, doc("all jobs ask for what the largest needs", "jobs are submitted as arrays")
    ] = False
