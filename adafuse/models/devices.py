"""Which device and dtype each model gets."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from adafuse.errors import UserError, known

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Place:
    """Where further checkpoints of a method go: the device and dtype of the first model."""

    device: torch.device
    dtype: torch.dtype

    @classmethod
    def named(cls, device: str, dtype: str) -> "Place":
        """Return a place by the names that users write."""
        (chosen,) = devices(device, 1)
        return cls(chosen, dtype_of(dtype, chosen))


def devices(device: str | Sequence[str], count: int) -> list[torch.device]:
    """Return one device per model.

    One name serves all models, a list names one each. "auto" is the next CUDA device in turn, or
    the CPU where there is none.
    """
    names = [device] if isinstance(device, str) else list(device)
    names = names * count if len(names) == 1 else names
    if len(names) != count:
        raise UserError(f"{len(names)} devices for {count} models; give one, or one per model")
    return [_device(name, number) for number, name in enumerate(names)]


def dtype_of(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype of weights; "auto" is bfloat16 on an accelerator and float32 on a CPU."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise UserError(known("dtype", name, ["auto", *DTYPES]))
    return DTYPES[name]


def _device(name: str, number: int) -> torch.device:
    if name == "auto":
        cards = torch.cuda.device_count()
        return torch.device("cuda", number % cards) if cards else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"unknown device {name!r}; use auto, cpu or cuda:0") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise UserError(f"device {name!r} is not there ({count} CUDA devices found); use auto")
    return device
