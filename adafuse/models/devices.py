"""Which devices and dtype each model gets."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from adafuse.errors import UserError, known
from adafuse.models.device_names import DeviceName
from adafuse.models.host_memory import free_host_memory

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


def free_memory(device: torch.device) -> int:
    """Return the bytes that are free on a device now, of a CPU those that limits leave."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free_host_memory()


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
