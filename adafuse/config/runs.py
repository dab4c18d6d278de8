"""The sections `models`, `runs`, `decode` and `cluster`."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from adafuse.config.serve import ServeConfig, with_server
from adafuse.decoding.fusion import check_weights
from adafuse.errors import UserError
from adafuse.methods import METHODS, resolve
from adafuse.methods.selections import SELECTIONS, selection
from adafuse.models.spec import AUTO, SERVER, WHERE_SET, DeviceName, ModelEntry
from adafuse.options import BatchSize, Flag, Identifier, Number, Positive, Section, Text, refusing
from adafuse.plugins import not_there

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Values = Annotated[list[Any], Field(min_length=1)]


def _device(text: str) -> str:
    with refusing():
        DeviceName.parse(text)
    return text


class ModelConfig(ModelEntry):
    serve: ServeConfig | None = None
    """a server that the workflow starts: `{engine: vllm, command: /path/to/vllm, gpus: 2, args:
    [...]}` ([docs/served.md](../docs/served.md)); change it when decode jobs are not to load the
    model, and no server of it runs"""

    @model_validator(mode="before")
    @classmethod
    def _has_a_server(cls, values: object) -> object:
        with refusing():
            return with_server(values)

    @model_validator(mode="after")
    def _can_be_served(self) -> Self:
        if self.serve is not None:
            with refusing():
                self.serve.words(self, "", "")
        return self

    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str | None) -> str | None:
        _device(value or AUTO)
        return value

    @model_validator(mode="after")
    def _is_of_use(self) -> Self:
        """Refuse settings of loading for a model on a server, and the other way round."""
        for name in WHERE_SET if self.chat is False else ():
            if value := getattr(self, name):
                raise ValueError(
                    f"{name} {value} change nothing without a chat template; set `chat: true`, or"
                    " remove them"
                )
        idle = ("device", "allow_pickle") if self.server else SERVER[1:]
        for name in idle:
            if value := getattr(self, name):
                where = "on a server" if self.server else "without server"
                raise ValueError(f"{name} {value!r} changes nothing in a model {where}; remove it")
        return self


class FirstAttempt(Section):
    """What decode jobs request from a cluster, instead of an estimate."""

    mem_mb: Positive | None = None
    """megabytes of the first attempt; change it when the estimate is wrong"""
    runtime: Positive | None = None
    """minutes of the first attempt; change it when the estimate is wrong"""


class JobSize(FirstAttempt):
    gpu: Number | None = None
    """GPUs per job; change it when the run needs more or fewer"""


class RunConfig(Section):
    """A method with its options on an ordered list of models."""

    method: Text
    """one of `adafuse methods`, or a choice between other runs: `best_of`, `best_pair`,
    `development_pair`, `certified`"""
    models: tuple[Identifier, ...] = Field(min_length=1)
    """names of `models`, in order"""
    weights: tuple[Weight, ...] | None = None
    """one per model; all 1 without it; not for `llm_blender` and choices between runs; change it
    when one model should count more"""
    options: dict[str, Any] = Field(default_factory=dict)
    """options of the method, such as `tau`, `max_words`, `branching`, `fusion`: see `adafuse
    methods` or [docs/methods.md](../docs/methods.md#options); change it when the method's defaults
    are not what you want"""
    max_rounds: Positive | None = None
    """maximum rounds of an answer; not for choices between runs; change it when you want to limit
    rounds, not tokens"""
    served: Flag = True
    """`false`: load its models, also those with a `server`; change it when the method reads whole
    distributions, which servers do not send"""
    cluster: JobSize = JobSize()
    """what this run's jobs request, instead of estimates; change it when it needs more than
    others"""
    sweep: Annotated[dict[str, Values], Field(min_length=1)] | None = Field(None, exclude=True)
    """`{tau: [0.5, 0.7]}`: one run per value, named NAME_0.5 and NAME_0.7; in lists of runs NAME
    stands for all of them; change it when you vary an option"""

    @model_validator(mode="after")
    def _fits_its_method(self) -> Self:
        with refusing():
            check_weights(self.weights, len(self.models))
            if self.method in METHODS:
                self._check_method()
            elif self.method in SELECTIONS:
                self._check_selection()
            else:
                raise UserError(not_there("method", self.method, [*METHODS, *SELECTIONS]))
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
    """`tree`, or `reference`: slow, to check results; change it when you doubt a result"""
    batch_size: BatchSize = 16
    """examples decoded at a time; `auto`: as many as fit into free memory; change it when memory
    runs out, or a GPU is underused"""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """data type of weights and activations; change it when models run on a GPU: `bfloat16`"""
    device: Annotated[Text, AfterValidator(_device)] = "auto"
    """device of models without their own: `auto`, `cpu`, `cuda:0`, `cuda:0+cuda:1`, `balanced`,
    `sequential` ([what they mean](#a-model-larger-than-one-gpu)); change it when models should run
    elsewhere"""
    gpu: Number = 1
    """maximum GPUs per decode job; `cluster.gpu` of a run overrides it; change it when models run
    on a CPU (0), two models on `auto` get a GPU each (2), or a model is spread over several (as
    many as the largest needs)"""
    max_error_share: Annotated[float, Field(ge=0, le=1, strict=True)] = 0.1
    """share of a shard's rows that may fail before the job fails; good rows are kept, failed ones
    count as wrong, and their number is shown beside every score; change it when some rows are known
    to be too long, or none may fail (`0`)"""


class ClusterConfig(FirstAttempt):
    """What all decode jobs request, and the maximum that they may.

    With `uniform`, all request what the largest of them needs, as the tasks of an array must.
    """

    max_mem_mb: Positive | None = None
    """maximum megabytes of any attempt; change it when the partition refuses more"""
    max_runtime: Positive | None = None
    """maximum minutes of any attempt; change it when the partition refuses more"""
    uniform: Flag = False
    """all jobs request what the largest needs; change it when jobs are submitted as arrays"""
    group: Positive = 1
    """most decode jobs with the same models that are one job of the cluster, which loads them once;
    change it when jobs are shorter than their start or their time in the queue"""
