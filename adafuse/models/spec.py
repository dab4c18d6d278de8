"""Where a model comes from, where it goes and how it is loaded."""

import re
from dataclasses import dataclass

from adafuse.errors import UserError

AUTO = "auto"
BALANCED = "balanced"
SPREADS = (BALANCED, "sequential")
"""Ways to spread a model over all CUDA devices, as accelerate calls them."""

_SPREAD_GPUS = 2
"""The fewest GPUs that a model can be spread over."""

_ONE = re.compile(r"cpu|mps|(cuda|xpu)(:\d+)?")
_GPU = re.compile(r"cuda(:\d+)?")
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
        """Read "auto", a device, a list of CUDA devices joined by "+", or a way to spread.

        Raises:
            UserError: something else.
        """
        if text == AUTO or text in SPREADS:
            return cls((), None if text == AUTO else text)
        if "+" not in text:
            if not _ONE.fullmatch(text):
                raise UserError(f"unknown device {text!r}; use {_FORMS}")
            return cls((text,))
        devices = tuple(part if ":" in part else f"{part}:0" for part in text.split("+"))
        if not all(map(_GPU.fullmatch, devices)) or len(set(devices)) != len(devices):
            raise UserError(
                f"device {text!r} is no list of different CUDA devices; write one such as"
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
        named = [each for each in self.devices if _GPU.fullmatch(each)]
        return max((int(each.partition(":")[2] or 0) + 1 for each in named), default=0)
