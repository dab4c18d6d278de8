"""The sections `models`, `runs`, `decode` and `cluster`."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from adafuse.decoding.fusion import check_weights
from adafuse.errors import UserError, known
from adafuse.methods import METHODS, resolve
from adafuse.metrics.selection import SELECTIONS, selection
from adafuse.models.spec import AUTO, DeviceName, ModelEntry
from adafuse.options import BatchSize, Flag, Number, Positive, Section, Text, refusing

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

    mem_mb: Positive | None = None
    """megabytes of the first attempt; change it when the estimate is off"""
    runtime: Positive | None = None
    """minutes of the first attempt; change it when the estimate is off"""


class JobSize(FirstAttempt):
    gpu: Number | None = None
    """GPUs of a job; change it when the run needs more or fewer"""


class RunConfig(Section):
    """A method with its options on an ordered list of models."""

    method: Text
    """one of `adafuse methods`, or a choice between other runs: `best_of`, `best_pair`,
    `development_pair`"""
    models: tuple[Text, ...] = Field(min_length=1)
    """names of `models`, in order"""
    weights: tuple[Weight, ...] | None = None
    """one per model; all 1 without it; refused where nothing is weighed (`llm_blender`, choices
    between runs); change it when one model is to be trusted more"""
    options: dict[str, Any] = Field(default_factory=dict)
    """those of the method, for instance `tau`, `max_words`, `branching`, `fusion`; see `adafuse
    methods` or [docs/methods.md](../docs/methods.md#options); change it when the method's defaults
    are not what you want"""
    max_rounds: Positive | None = None
    """ends an answer after that many rounds; not for choices between runs; change it when decisions
    are to be limited, not tokens"""
    cluster: JobSize = JobSize()
    """what its jobs ask for, instead of estimates; change it when it needs more than others"""
    sweep: Annotated[dict[str, Values], Field(min_length=1)] | None = Field(None, exclude=True)
    """`{tau: [0.5, 0.7]}`: the run once per value, named NAME_0.5 and NAME_0.7; a list of runs may
    say NAME for all of them; change it when a run is wanted for many values of an option"""

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

    engine: Literal["tree", "reference"] = "tree"
    """`tree`, or `reference`: slow, plain, for checking; change it when you doubt a result"""
    batch_size: BatchSize = 16
    """examples decoded at a time; `auto`: as many as fit into the free memory; change it when
    memory runs out, or a GPU is not busy"""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """numbers that the models compute with; change it when they run on a GPU: `bfloat16`"""
    device: Annotated[Text, AfterValidator(_device)] = "auto"
    """of models without their own: `auto`, `cpu`, `cuda:0`, `cuda:0+cuda:1`, `balanced`,
    `sequential` ([what they mean](#a-model-larger-than-one-gpu)); change it when models are to run
    elsewhere"""
    gpu: Number = 1
    """the most GPUs that a decode job asks for; change it when 0 for models on a CPU; 2 where two
    models on `auto` get one each; as many as the largest model is spread over; `cluster.gpu` of a
    run goes first"""
    max_error_share: Annotated[float, Field(ge=0, le=1, strict=True)] = 0.1
    """the part of a shard's rows that may fail before the job does; the others are kept; change it
    when a few rows are known to be too long, or none may fail (`0`)"""


class ClusterConfig(FirstAttempt):
    """What all decode jobs ask for, and the most that they may.

    `uniform` has all ask for what the largest of them needs, as the tasks of an array must.
    """

    max_mem_mb: Positive | None = None
    """the most megabytes of any attempt; change it when the partition refuses more"""
    max_runtime: Positive | None = None
    """the most minutes of any attempt; change it when the partition refuses more"""
    uniform: Flag = False
    """all jobs ask for what the largest needs; change it when jobs are submitted as arrays"""
