"""Which devices and dtype each model gets, and how one is spread over several devices."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.integrations.accelerate import get_balanced_memory, infer_auto_device_map

from adafuse.errors import UserError
from adafuse.models.hub import explaining_failure
from adafuse.models.memory import free_memory
from adafuse.models.quantization import check_quantization, quantizer_of, without_weights
from adafuse.models.spec import AUTO, BALANCED, DeviceName, ModelSpec

logger = logging.getLogger(__name__)


def resolved(specs: Sequence[ModelSpec]) -> list[ModelSpec]:
    """Decide what is "auto" here; refuse a device or quantization that cannot be had.

    Nothing of a model on a server is placed.
    """
    placed, number = [], -1
    for spec in specs:
        if spec.server is not None:
            placed.append(spec.model_copy(update={"device": "cpu", "dtype": "float32"}))
            continue
        first = devices(spec.device, number := number + 1)[0]
        check_quantization(spec.quantization, first)
        device = str(first) if spec.device == AUTO else spec.device
        dtype = str(dtype_of(spec.dtype, first)).removeprefix("torch.")
        placed.append(spec.model_copy(update={"device": device, "dtype": dtype}))
    return placed


def devices(name: str, number: int = 0) -> tuple[torch.device, ...]:
    """Return the devices of a name; for "auto" one in turn, by the `number` of the model."""
    parsed, cards = DeviceName.parse(name), torch.cuda.device_count()
    for card in parsed.devices:
        if card.startswith("cuda") and int(card.removeprefix("cuda:")) >= cards:
            raise UserError(f"no device {card!r}: {cards} CUDA devices were found; use auto")
    if parsed.devices:
        return tuple(map(torch.device, parsed.devices))
    everywhere = tuple(torch.device("cuda", index) for index in range(cards))
    if parsed.strategy is None:
        return (everywhere[number % cards] if cards else torch.device("cpu"),)
    if not everywhere:
        raise UserError(
            f"device {name!r} spreads a model over CUDA devices, but there are none here; use auto"
        )
    return everywhere


def device_names(spec: ModelSpec) -> str:
    """Return the devices of a resolved spec as text, such as "cuda:0+cuda:1"."""
    return "+".join(map(str, devices(spec.device)))


def dtype_of(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype of weights; "auto" is bfloat16 on an accelerator and float32 on a CPU."""
    if name == AUTO:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    dtype: torch.dtype = getattr(torch, name)
    return dtype


@dataclass(frozen=True, slots=True)
class Place:
    """Where further checkpoints of a method go: the device and dtype of the first model."""

    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, spec: ModelSpec) -> "Place":
        device = devices(spec.device)[0]
        return cls(device, dtype_of(spec.dtype, device))


WEIGHTS_SHARE = 0.9  # of a device's free memory; keys and values need the rest

DeviceMap = dict[str, int | str | torch.device]
"""The device of each part of a network, by the names of its modules."""
Memory = dict[int | str, int | str]
"""Bytes by CUDA device."""


def device_map(spec: ModelSpec, config: PreTrainedConfig) -> DeviceMap:
    """Return the device of every part of a model; a spread goes by the memory that is free now."""
    cards = devices(spec.device)
    if not spec.spread:
        return {"": cards[0]}
    memory: Memory = {card.index: int(WEIGHTS_SHARE * free_memory(card)) for card in cards}
    with explaining_failure(spec):
        placement = plan(spec, config, memory)
    if any(isinstance(device, str) for device in placement.values()):
        free = ", ".join(f"{int(size) / (1 << 30):.2f}" for size in memory.values())
        raise UserError(
            f"model {spec.path!r} does not fit on {device_names(spec)} ({free} GiB may be taken);"
            " name more devices, or use a smaller dtype or quantization"
        )
    logger.info("%s goes to %s", spec.path, placement)
    return placement


def plan(spec: ModelSpec, config: PreTrainedConfig, memory: Memory) -> DeviceMap:
    """Return transformers' own map for so much memory; "disk" is where nothing is left."""
    quantizer: Any
    quantizer, config = quantizer_of(spec, config)
    network: Any = without_weights(spec, config)
    whole = network._no_split_modules
    if quantizer is not None:
        quantizer.preprocess_model(model=network, dtype=network.dtype, device_map=None)
    if DeviceName.parse(spec.device).strategy == BALANCED:
        memory = get_balanced_memory(network, dict(memory), whole, quantizer)
    if quantizer is not None:
        memory = quantizer.adjust_max_memory(memory)
    placement: DeviceMap = infer_auto_device_map(
        network, memory, no_split_module_classes=whole, hf_quantizer=quantizer
    )
    return placement


def layer_devices(network: PreTrainedModel, main: torch.device) -> list[torch.device]:
    """Return where each layer runs and has its keys and values; `main` if it is moved there."""
    count = network.config.get_text_config().num_hidden_layers
    text_part: nn.Module = network.get_decoder()  # type: ignore[no-untyped-call]
    for module in chain(text_part.modules(), network.modules()):  # a vision tower comes later
        if isinstance(module, nn.ModuleList) and len(module) == count:
            devices = [next(layer.parameters()).device for layer in module]
            return [main if device.type == "meta" else device for device in devices]
    return [main] * count
