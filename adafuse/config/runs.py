"""The sections `models`, `runs`, `decode` and `cluster`."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from adafuse.decoding.fusion import check_weights
from adafuse.errors import UserError, known
from adafuse.methods import METHODS, resolve
from adafuse.metrics.selection import SELECTIONS, selection
from adafuse.models.spec import AUTO, DeviceName, ModelEntry
from adafuse.options import BatchSize, Flag, Number, Positive, Section, Text, doc, refusing

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Values = Annotated[list[Any], Field(min_length=1)]


def _device(text: str) -> str:
    with refusing():
        DeviceName.parse(text)
    return text


class ModelConfig(ModelEntry):
    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str | None) -> str | None:
        _device(value or AUTO)
        return value


class FirstAttempt(Section):
    """What decode jobs ask a cluster for, instead of an estimate."""

    mem_mb: Positive | None = doc("megabytes of the first attempt", "the estimate is off", None)
    runtime: Positive | None = doc("minutes of the first attempt", "the estimate is off", None)


class JobSize(FirstAttempt):
    gpu: Number | None = doc("GPUs of a job", "the run needs more or fewer", None)


class RunConfig(Section):
    """A method with its options on an ordered list of models."""

    method: Text = doc(
        "one of `adafuse methods`, or a choice between other runs: `best_of`, `best_pair`,"
        " `development_pair`"
    )
    models: tuple[Text, ...] = doc("names of `models`, in order", min_length=1)
    weights: tuple[Weight, ...] | None = doc(
        "one per model; all 1 without it; refused where nothing is weighed (`llm_blender`, choices"
        " between runs)",
        "one model is to be trusted more",
        None,
    )
    options: dict[str, Any] = doc(
        "those of the method, for instance `tau`, `max_words`, `branching`, `fusion`; see"
        " `adafuse methods` or [docs/methods.md](../docs/methods.md#options)",
        "the method's defaults are not what you want",
        default_factory=dict,
    )
    max_rounds: Positive | None = doc(
        "ends an answer after that many rounds; not for choices between runs",
        "decisions are to be limited, not tokens",
        None,
    )
    cluster: JobSize = doc(
        "what its jobs ask for, instead of estimates", "it needs more than others", JobSize()
    )
    sweep: Annotated[dict[str, Values], Field(min_length=1)] | None = doc(
        "`{tau: [0.5, 0.7]}`: the run once per value, named NAME_0.5 and NAME_0.7; a list of runs"
        " may say NAME for all of them",
        "a run is wanted for many values of an option",
        None,
        exclude=True,
    )

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

    `dtype` has no "auto": the same configuration must mean the same numbers on every machine.
    """

    engine: Literal["tree", "reference"] = doc(
        "`tree`, or `reference`: slow, plain, for checking", "you doubt a result", "tree"
    )
    batch_size: BatchSize = doc(
        "examples decoded at a time; `auto`: as many as fit into the free memory",
        "memory runs out, or a GPU is not busy",
        16,
    )
    dtype: Literal["float32", "bfloat16", "float16"] = doc(
        "numbers that the models compute with", "they run on a GPU: `bfloat16`", "float32"
    )
    device: Annotated[Text, AfterValidator(_device)] = doc(
        "of models without their own: `auto`, `cpu`, `cuda:0`, `cuda:0+cuda:1`, `balanced`,"
        " `sequential` ([what they mean](#a-model-larger-than-one-gpu))",
        "models are to run elsewhere",
        "auto",
    )
    gpu: Number = doc(
        "the most GPUs that a decode job asks for",
        "0 for models on a CPU; 2 where two models on `auto` get one each; as many as the largest"
        " model is spread over; `cluster.gpu` of a run goes first",
        1,
    )
    max_error_share: Annotated[float, Field(ge=0, le=1, strict=True)] = doc(
        "the part of a shard's rows that may fail before the job does; the others are kept",
        "a few rows are known to be too long, or none may fail (`0`)",
        0.1,
    )


class ClusterConfig(FirstAttempt):
    """What all decode jobs ask for, and the most that they may.

    `uniform` has all ask for what the largest of them needs, as the tasks of an array must.
    """

    max_mem_mb: Positive | None = doc(
        "the most megabytes of any attempt", "the partition refuses more", None
    )
    max_runtime: Positive | None = doc(
        "the most minutes of any attempt", "the partition refuses more", None
    )
    uniform: Flag = doc(
        "all jobs ask for what the largest needs", "jobs are submitted as arrays", False
    )
