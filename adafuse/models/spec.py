"""What is said of a model before it is loaded: the only description that loading takes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import combinations, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Self, TypedDict, Unpack

from pydantic import (
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from adafuse.errors import UserError, unknown
from adafuse.options import Located, Section, Text, listed, parse, refusing, sentence
from adafuse.records.result import CHAT_DATE, json_values

if TYPE_CHECKING:
    import torch

AUTO: Final = "auto"
BALANCED = "balanced"
SPREADS = (BALANCED, "sequential")  # over all CUDA devices, as accelerate calls them
DTYPES = (AUTO, "float32", "bfloat16", "float16")
QUANTIZATIONS = ("int8", "int4")

_SPREAD_GPUS = 2  # the fewest that a model can be spread over
_ONE = re.compile(r"cpu|mps|(cuda|xpu)(:\d+)?")
_GPU = re.compile(r"cuda:\d+")
_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")
_FORMS = "auto, cpu, cuda:0, a list such as cuda:0+cuda:1, balanced or sequential"


@dataclass(frozen=True, slots=True)
class DeviceName:
    """What a user wrote: `strategy` if the model is spread, over `devices` or all there are.

    Without a strategy, `devices` holds one name, or none for "auto".
    """

    devices: tuple[str, ...]
    strategy: str | None = None

    @classmethod
    def parse(cls, text: str) -> "DeviceName":
        """Read "auto", a device, a list of CUDA devices joined by "+", or a way to spread."""
        if text == AUTO or text in SPREADS:
            return cls((), None if text == AUTO else text)
        if "+" not in text and not _ONE.fullmatch(text):
            raise UserError(f"unknown device {text!r}; use {_FORMS}")
        devices = tuple("cuda:0" if part == "cuda" else part for part in text.split("+"))
        if "+" not in text:
            return cls(devices)
        if not all(map(_GPU.fullmatch, devices)) or len(set(devices)) != len(devices):
            raise UserError(
                f"device {text!r} is not a list of different CUDA devices; write one such as"
                " cuda:0+cuda:1"
            )
        return cls(devices, BALANCED)

    @property
    def kind(self) -> str:
        """What runs the model: "cuda", "cpu", ...; "auto" where that is open."""
        if self.strategy is not None:
            return "cuda"
        return self.devices[0].partition(":")[0] if self.devices else AUTO

    @property
    def gpus(self) -> int:
        """The fewest GPUs among which it is found, counted from 0; "auto" is found without any."""
        if self.strategy is not None and not self.devices:
            return _SPREAD_GPUS
        cards = [name.partition(":") for name in self.devices if name.startswith("cuda")]
        return max((int(index) + 1 for _, _, index in cards), default=0)


GGUF = ".gguf"
WITH = " + "
"""What stands between a model and its adapter in its name."""


def with_adapter(path: str, adapter: str | None) -> str:
    """Return the name of a model with an adapter, if it has one."""
    return path if adapter is None else f"{path}{WITH}{adapter}"


def recorded_names(settings: Mapping[str, Any]) -> list[str]:
    """Return the models that the settings of a trace name, with their adapters."""
    paths, adapters = settings.get("models", ()), settings.get("adapter") or (None,)
    return [with_adapter(*pair) for pair in zip(paths, cycle(adapters), strict=False)]


def refuse_served(name: str, what: str) -> NoReturn:
    """Refuse a model on a server for what needs all of it.

    Raises:
        UserError: always.
    """
    raise UserError(
        f"{what} reads whole distributions or weights, which the server of {name} does not give;"
        " load the model (leave out server) or use another method"
    )


def public_name(name: str) -> str:
    """Return the last part of a path, which may tell of this machine; an id of the hub is kept."""
    path = Path(name)
    return path.resolve().name if path.is_absolute() or path.exists() else name


class ModelEntry(Section):
    """A model as the workflow's configuration names it; what is None there is decided for all."""

    model_config = ConfigDict(strict=True)

    path: Located
    """a Hugging Face model folder, a hub id `org/name`, or a GGUF file: `folder/name.gguf`, or
    `org/name/file.gguf` on the hub (needs `pip install '.[gguf]'`); its weights are
    dequantized to `dtype`, so it takes as much memory and time as the model in a folder"""
    adapter: Located | None = None
    """folder of a LoRA adapter that is used with the model (needs `pip install '.[adapters]'`);
    change it when you have one; results change"""
    revision: Text | None = None
    """commit of a hub model; change it when the model is from the hub and `snakemake prefetch` has
    not recorded its commit ([docs/hpc.md](../docs/hpc.md)); otherwise changes on the hub are not
    noticed"""
    chat: bool | Literal["auto"] = False
    """apply the model's own chat template to prompts; `auto`: if it has one; change it when the
    model is tuned for chat"""
    chat_date: Text = CHAT_DATE
    """the date that chat templates use as today, as YYYY-MM-DD; it is fixed, so prompts do not
    change at midnight; change it when questions depend on it"""
    chat_template_kwargs: dict[str, Any] | None = None
    """further variables of the chat template, such as `{enable_thinking: false}`; change it when
    the template has switches, such as one for thinking"""
    thoughts: dict[str, Text] | None = None
    """what begins and ends the thoughts of a model that thinks before it answers, such as `{begin:
    "<think>", end: "</think>"}`; without it, what its chat template names; change it when the
    template does not name them"""
    device: Text | None = None
    """device of this model, instead of `decode.device` ([the names](#a-model-larger-than-one-gpu));
    change it when two large models need a GPU each, or one model needs several"""
    quantization: Literal["int8", "int4"] | None = None
    """weights of 8 or 4 bits; needs `pip install '.[quantized]'`; change it when a model does
    not fit otherwise; results change"""
    trust_remote_code: bool = False
    """run the Python code that comes with the model; change it when the model needs it, and you
    have read the code and pinned it with `revision`"""
    allow_pickle: bool = False
    """read weights that are not safetensors (such files can run code); change it when the model has
    no safetensors and you trust its source"""
    server: Text | None = None
    """URL of a server that has the model (vLLM, llama.cpp), such as `http://node7:8000`: of `path`,
    only the tokenizer and config are read then ([docs/served.md](../docs/served.md)); change it
    when the model runs on a server"""
    server_model: Text | None = None
    """the server's name of the model; change it when the server has several"""
    server_key: Text | None = None
    """name of the environment variable that holds an API key of the server; change it when the
    server asks for one"""

    @field_validator("path", "adapter", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, Path) else value

    @field_validator("path", "adapter")
    @classmethod
    def _one_folder(cls, value: str | None) -> str | None:
        if value is not None and WITH in value:
            raise ValueError(
                f"{value!r} has {WITH!r}, which joins a model and its adapter; rename it"
            )
        return value

    @field_validator("server")
    @classmethod
    def _url(cls, value: str | None) -> str | None:
        if value is not None and not _URL.fullmatch(value):
            shown = value.rpartition("@")[2]  # without a password
            raise ValueError(
                f"{shown!r} is not a URL; write one such as http://node7:8000, and name the"
                " environment variable of an API key as server_key"
            )
        return value

    @field_validator("server_key")
    @classmethod
    def _variable(cls, value: str | None) -> str | None:
        if value is not None and not value.isidentifier():  # it may be the key itself
            raise ValueError(
                "it is not the name of an environment variable; export the API key as one, and"
                " write its name"
            )
        return value

    @model_validator(mode="after")
    def _has_an_effect(self) -> Self:
        if self.server is not None and self.adapter is not None:
            raise ValueError(
                f"adapter {self.adapter!r} changes nothing in a model on a server; remove it here,"
                " start the server with it, and name it as server_model"
            )
        if self.server is not None and self.quantization is not None:
            raise ValueError(
                f"quantization {self.quantization!r} changes nothing in a model on a server; remove"
                " it here, and start the server with it"
            )
        return self

    @field_validator("chat_date", mode="before")
    @classmethod
    def _day(cls, value: object) -> str:
        try:
            return date.fromisoformat(str(value)).isoformat()
        except ValueError:
            raise UserError(
                f"chat_date {value!r} is not a day; write one such as 2026-01-31"
            ) from None

    @field_validator("thoughts")
    @classmethod
    def _both_marks(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        whole = value is None or (
            value.keys() == {"begin", "end"} and all(map(str.strip, value.values()))
        )
        if not whole:
            raise ValueError(
                f"{value} must name begin and end, and nothing else; write it like"
                ' {"begin": "<think>", "end": "</think>"}'
            )
        return value

    @field_validator("chat_template_kwargs", mode="before")
    @classmethod
    def _variables(cls, value: object) -> object:
        with refusing():
            return None if value is None else json_values(value) or None

    @property
    def name(self) -> str:
        """What the model is called where its path is not enough."""
        return with_adapter(self.path, self.adapter)

    @property
    def source(self) -> tuple[str, str | None]:
        """The folder or hub id, and the GGUF file in it if that is meant."""
        if not self.path.endswith(GGUF):
            return self.path, None
        folder, _, file = self.path.rpartition("/")
        return folder or ("/" if self.path.startswith("/") else "."), file


def check_servers(models: Iterable[ModelEntry]) -> None:
    """Refuse two models that are one on a server: fused, it would only agree with itself.

    A server has a single model where none is named.
    """
    for one, other in combinations((each for each in models if each.server is not None), 2):
        urls = {str(each.server).rstrip("/").removesuffix("/v1") for each in (one, other)}
        names = {one.server_model, other.server_model} - {None}
        if one.path != other.path and len(urls) == 1 and len(names) < 2:
            raise UserError(
                f"{one.path!r} and {other.path!r} are both the model of the server {one.server};"
                " give each its own server, or its server_model if the server has several"
            )


class ModelSpec(ModelEntry):
    """How one model is loaded, prompted and placed: an element of `from_pretrained`'s `models`."""

    device: str = AUTO
    """`auto` (the CUDA devices in turn, or the CPU), `cpu`, `cuda:0`, `cuda:0+cuda:1` (one model on
    both), `balanced` (on all CUDA devices) or `sequential` (filling one after the other)"""
    dtype: str = AUTO
    """`auto` (float32 on a CPU, else bfloat16), `float32`, `bfloat16` or `float16`"""

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_sentence(cls, values: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return build(values)
        except ValidationError as error:
            named = isinstance(values, Mapping) and "path" in values
            owner = f"model {str(values['path'])!r}" if named else "ModelSpec"
            raise UserError(sentence(error.errors()[0], owner)) from None

    @field_validator("device")
    @classmethod
    def _device(cls, value: str) -> str:
        DeviceName.parse(value)
        return value

    @field_validator("dtype", "quantization", mode="before")
    @classmethod
    def _known(cls, value: object, info: ValidationInfo) -> object:
        names = DTYPES if info.field_name == "dtype" else QUANTIZATIONS
        if value not in names and not (value is None and names is QUANTIZATIONS):
            raise UserError(unknown(str(info.field_name), value, list(names)))
        return value

    @property
    def spread(self) -> bool:
        """Whether the model may be on several devices."""
        return DeviceName.parse(self.device).strategy is not None


class Loading(TypedDict, total=False):
    """Keywords of `Ensemble.from_pretrained`: the fields of `ModelSpec` for several models.

    Each is one value for all models, or a list with one value per model.
    """

    adapter: Sequence[str | Path | None] | None
    revisions: Sequence[str | None] | None
    device: "str | torch.device | Sequence[str | torch.device]"
    dtype: "str | torch.dtype | Sequence[str | torch.dtype]"
    chat: bool | str | Sequence[bool | str]
    chat_date: str | Sequence[str]
    chat_template_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None
    thoughts: Mapping[str, str] | Sequence[Mapping[str, str] | None] | None
    quantization: str | Sequence[str | None] | None
    trust_remote_code: bool | Sequence[bool]
    allow_pickle: bool | Sequence[bool]
    server: Sequence[str | None]
    server_model: Sequence[str | None]
    server_key: str | Sequence[str | None]


LOADING = {
    "revisions" if name == "revision" else name: name
    for name in ModelSpec.model_fields
    if name != "path"
}
"""The keywords of `Loading`, and the fields that they fill."""
WHERE_SET = ("chat_template_kwargs", "thoughts")
"""The fields that records and digests have only where a model has one."""


def columns(specs: Sequence[ModelSpec], names: Mapping[str, str]) -> dict[str, list[Any]]:
    """Return fields of models as lists, under the `names` that records have for them."""
    values = {name: [getattr(spec, own) for spec in specs] for name, own in names.items()}
    where_set = ("adapter", *WHERE_SET)
    return {k: each for k, each in values.items() if any(each) or names[k] not in where_set}


SERVER = ("server", "server_model", "server_key")
"""The fields of a model on a server."""
ON_SERVER = "server"
"""The device of a model on a server, as traces say it."""


def device_kind(device: str) -> str:
    """Return what runs a model, by its device in a trace: "cuda", "cpu", "server", ..."""
    return device if device == ON_SERVER else DeviceName.parse(device).kind


_ONE_FOR_ALL = (
    "chat_date",
    "chat_template_kwargs",
    "thoughts",
    "device",
    "dtype",
    "quantization",
    "server_key",
)  # a list of one is for all models


def model_specs(
    models: str | Path | ModelSpec | Iterable[str | Path] | Iterable[ModelSpec],
    **loading: Unpack[Loading],
) -> list[ModelSpec]:
    """Combine folders or hub ids with how they are loaded, one spec each; specs stay as they are.

    Raises:
        UserError: a value that is not allowed, or a list that does not have one per model.
    """
    given: list[str | Path | ModelSpec] = (
        [models]
        if isinstance(models, str | Path | ModelSpec)
        else [*listed(models, "models", "of folders or hub ids")]
    )
    specs = [model for model in given if isinstance(model, ModelSpec)]
    if specs and (loading or len(specs) < len(given)):
        raise UserError("a ModelSpec has all settings of its model; give no others with it")
    for name in loading:
        if name not in LOADING:
            raise UserError(unknown("model setting", name, list(LOADING)))
    count = len(given)
    columns = {LOADING[name]: _per_model(name, values, count) for name, values in loading.items()}
    specs = specs or [
        parse(
            ModelSpec,
            {"path": str(path), **{name: values[number] for name, values in columns.items()}},
            f"model {str(path)!r}",
        )
        for number, path in enumerate(given)
    ]
    for name in SERVER[1:]:
        named = name in loading and any(getattr(spec, name) for spec in specs)
        if named and not any(spec.server for spec in specs):
            raise UserError(
                f"{name} changes nothing without server; give the URL of the server, or leave it"
                " out"
            )
    check_servers(specs)
    return specs


def _name(value: object) -> object:
    """Return what torch calls "cuda:0" or torch.bfloat16 as users write it."""
    known = type(value).__module__ == "torch"
    return str(value).removeprefix("torch.") if known else value


def _per_model(name: str, values: Any, count: int) -> list[Any]:
    if name in ("device", "dtype"):  # torch has objects for both
        values = _name(values) if not isinstance(values, list | tuple) else [*map(_name, values)]
    if isinstance(values, str) or not isinstance(values, Sequence):
        return [values] * count
    if len(values) == 1 and name in _ONE_FOR_ALL:
        return [values[0]] * count
    if len(values) != count:
        raise UserError(f"{name}: {len(values)} given for {count} models; give one per model")
    return list(values)
