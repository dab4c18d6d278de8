"""Which devices, dtype and quantization each model gets."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from transformers import BitsAndBytesConfig, PreTrainedConfig, PreTrainedModel

from adafuse.errors import UserError, known
from adafuse.models.spec import DeviceName

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the weights of one model go: on a device, or spread over several by a `strategy`."""

    devices: tuple[torch.device, ...]
    strategy: str | None = None

    @property
    def first(self) -> torch.device:
        """The device that stands for all where only one can."""
        return self.devices[0]

    @property
    def spread(self) -> bool:
        """Whether the model may be in several places."""
        return self.strategy is not None

    def __str__(self) -> str:
        return "+".join(map(str, self.devices))


@dataclass(frozen=True, slots=True)
class Place:
    """Where further checkpoints of a method go: the device and dtype of the first model."""

    device: torch.device
    dtype: torch.dtype

    @classmethod
    def named(cls, device: str, dtype: str) -> "Place":
        """Return a place by the names that users write."""
        (chosen,) = placements(device, 1)
        return cls(chosen.first, dtype_of(dtype, chosen.first))


def placements(device: str | Sequence[str], count: int) -> list[Placement]:
    """Return where each model goes.

    One name serves all models, a list names one each. "auto" is the next CUDA device in turn, or
    the CPU where there is none; "cuda:0+cuda:1" spreads one model over these devices; "balanced"
    and "sequential" spread it over all CUDA devices.

    Raises:
        UserError: no such device here, or another number of names.
    """
    names = [device] if isinstance(device, str) else list(device)
    names = names * count if len(names) == 1 else names
    if len(names) != count:
        raise UserError(f"{len(names)} devices for {count} models; give one, or one per model")
    return [_placement(name, number) for number, name in enumerate(names)]


def dtype_of(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype of weights; "auto" is bfloat16 on an accelerator and float32 on a CPU."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise UserError(known("dtype", name, ["auto", *DTYPES]))
    return DTYPES[name]


def _placement(text: str, number: int) -> Placement:
    name, cards = DeviceName.parse(text), torch.cuda.device_count()
    if name.devices:
        return Placement(tuple(_device(each, cards) for each in name.devices), name.strategy)
    everywhere = tuple(torch.device("cuda", index) for index in range(cards))
    if name.strategy is None:
        return Placement((everywhere[number % cards] if cards else torch.device("cpu"),))
    if not everywhere:
        raise UserError(
            f"device {text!r} spreads a model over CUDA devices, and none is here; use auto"
        )
    return Placement(everywhere, name.strategy)


def _device(name: str, cards: int) -> torch.device:
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= cards:
        raise UserError(f"device {name!r} is not there ({cards} CUDA devices found); use auto")
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


QUANTIZATIONS = ("int8", "int4")

_PACKED = 32
"""On a CPU, bitsandbytes packs so many rows of a 4-bit matrix together."""


def check_quantization(quantization: str | None, placement: Placement) -> None:
    """Refuse what cannot be quantized here, before any weights are read.

    Raises:
        UserError: an unknown name, no bitsandbytes, or a device that it does not know.
    """
    if quantization is None:
        return
    if quantization not in QUANTIZATIONS:
        raise UserError(known("quantization", quantization, list(QUANTIZATIONS)))
    if find_spec("bitsandbytes") is None:
        raise UserError(
            f"quantization {quantization!r} needs bitsandbytes, which is not installed; run"
            " pip install 'adafuse[quantized]', or leave quantization out"
        )
    import bitsandbytes

    if placement.first.type not in bitsandbytes.supported_torch_devices:
        raise UserError(
            f"quantization {quantization!r} cannot run on {placement.first} with bitsandbytes"
            f" {bitsandbytes.__version__}; use a CUDA device, or leave quantization out"
        )


def check_unquantized(config: PreTrainedConfig, quantization: str | None, name: str) -> None:
    """Refuse to quantize weights that are quantized already.

    Raises:
        UserError: the model's config.json says that they are.
    """
    if quantization is not None and getattr(config, "quantization_config", None) is not None:
        raise UserError(
            f"model {name!r} is quantized already, says its config.json; leave out quantization"
            f" {quantization!r}"
        )


def quantization_config(quantization: str | None) -> BitsAndBytesConfig | None:
    """Return LLM.int8(), or NF4 weights that are multiplied in bfloat16."""
    if quantization is None:
        return None
    # It warns at every product that bfloat16 inputs are cast, which is how LLM.int8() works.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    settings: dict[str, Any] = {"load_in_8bit": True}
    if quantization == "int4":
        settings = {
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_compute_dtype": torch.bfloat16,
        }
    return BitsAndBytesConfig(**settings)  # type: ignore[no-untyped-call]


@contextmanager
def without_outliers(network: PreTrainedModel) -> Iterator[None]:
    """Make LLM.int8() treat each token by itself for a while, so that batches can be compared.

    What it leaves out of 8 bits it chooses by all tokens of a forward.
    """
    if not getattr(network, "is_loaded_in_8bit", False):
        yield
        return
    from bitsandbytes.nn import Linear8bitLt

    states = [each.state for each in network.modules() if isinstance(each, Linear8bitLt)]
    thresholds = [state.threshold for state in states]
    for state in states:
        state.threshold = 0.0
    try:
        yield
    finally:
        for state, threshold in zip(states, thresholds, strict=True):
            state.threshold = threshold


def check_packable(network: PreTrainedModel, quantization: str | None, name: str) -> None:
    """Refuse a 4-bit model on a CPU that bitsandbytes could not multiply with.

    Raises:
        UserError: a matrix whose rows cannot be packed.
    """
    if quantization != "int4" or network.device.type != "cpu":
        return
    from bitsandbytes.nn import Linear4bit

    matrices = [each for each in network.modules() if isinstance(each, Linear4bit)]
    for matrix in matrices:
        if matrix.out_features % _PACKED:
            raise UserError(
                f"model {name!r} cannot be int4 on a CPU, where the rows of a matrix"
                f" ({matrix.out_features} here) must be a multiple of {_PACKED}; use int8 or a"
                " CUDA device"
            )


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A folder or hub id, and how it is loaded and prompted.

    Code that comes with the model runs only if it is trusted with `trust_remote_code`; weights in
    Python's pickle format, which can hold code, are read only with `allow_pickle`.
    """

    path: str
    revision: str | None
    placement: Placement
    dtype: torch.dtype
    chat: bool = False
    quantization: str | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False


def sources(
    paths: Sequence[str],
    *,
    revisions: Sequence[str | None] | None,
    device: str | Sequence[str],
    dtype: str,
    chat: bool | Sequence[bool],
    quantization: str | Sequence[str | None] | None,
    trust_remote_code: bool | Sequence[bool],
    allow_pickle: bool | Sequence[bool],
) -> list[ModelSource]:
    """Combine the settings of all models, one source each.

    Raises:
        UserError: a setting that is not there for each model, or that cannot be had here.
    """
    count = len(paths)
    rows = zip(
        paths,
        _each(revisions, count, "revisions"),
        placements(device, count),
        _each(chat, count, "chat settings"),
        _each(quantization, count, "quantizations"),
        _each(trust_remote_code, count, "values of trust_remote_code"),
        _each(allow_pickle, count, "values of allow_pickle"),
        strict=True,
    )
    wanted = [
        ModelSource(path, pin, place, dtype_of(dtype, place.first), *others)
        for path, pin, place, *others in rows
    ]
    for source in wanted:
        check_quantization(source.quantization, source.placement)
    return wanted


def _each(values: object, count: int, what: str) -> list[Any]:
    """Return one value per model; what is no sequence is that of all."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        return [values] * count
    if len(values) != count:
        raise UserError(f"{len(values)} {what} for {count} models; give one per model")
    return list(values)
