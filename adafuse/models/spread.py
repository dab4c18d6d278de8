"""Spreading the layers of one model over several devices, and finding them there."""

import logging
from copy import deepcopy
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.integrations.accelerate import get_balanced_memory, infer_auto_device_map
from transformers.quantizers.auto import get_hf_quantizer

from adafuse.errors import UserError
from adafuse.models.hub import failure_told
from adafuse.models.memory import free_memory
from adafuse.models.placement import ModelSource, quantization_config
from adafuse.models.spec import BALANCED

logger = logging.getLogger(__name__)

WEIGHTS_SHARE = 0.9
"""The part of a device's free memory that weights may take; keys and values need the rest."""

DeviceMap = dict[str, int | str | torch.device]
Memory = dict[int | str, int | str]
"""Bytes by CUDA device."""


def device_map(source: ModelSource, config: PreTrainedConfig) -> DeviceMap:
    """Return the device of every part of a model, by the names of its modules.

    A spread is planned on a model without weights, by the memory that is free now.

    Raises:
        UserError: the model does not fit on its devices.
    """
    placement = source.placement
    if not placement.spread:
        return {"": placement.first}
    memory: Memory = {
        device.index: int(WEIGHTS_SHARE * free_memory(device)) for device in placement.devices
    }
    with failure_told(source):
        found = plan(source, config, memory)
    if any(isinstance(device, str) for device in found.values()):
        free = ", ".join(f"{int(size) / (1 << 30):.2f}" for size in memory.values())
        raise UserError(
            f"model {source.path!r} does not fit on {placement} ({free} GiB may be taken); name"
            " more devices, or use a smaller dtype or quantization"
        )
    logger.info("%s goes to %s", source.path, found)
    return found


def plan(source: ModelSource, config: PreTrainedConfig, memory: Memory) -> DeviceMap:
    """Return accelerate's map for so much memory; "disk" is where nothing is left."""
    quantizer, config, _ = get_hf_quantizer(  # type: ignore[no-untyped-call]
        deepcopy(config), quantization_config(source.quantization), None, True, {}
    )
    factory: Any = AutoModelForCausalLM
    with torch.device("meta"):
        network = factory.from_config(
            config, dtype=source.dtype, trust_remote_code=source.trust_remote_code
        )
    whole = network._no_split_modules
    if quantizer is not None:
        quantizer.preprocess_model(model=network, dtype=source.dtype, device_map=None)
    if source.placement.strategy == BALANCED:
        memory = get_balanced_memory(network, dict(memory), whole, quantizer)
    if quantizer is not None:
        memory = quantizer.adjust_max_memory(memory)
    found: DeviceMap = infer_auto_device_map(
        network, memory, no_split_module_classes=whole, hf_quantizer=quantizer
    )
    return found


def layer_devices(network: PreTrainedModel, main: torch.device) -> list[torch.device]:
    """Return where each layer runs and keeps its keys and values, first layer first.

    Args:
        network: with or without a device map.
        main: where layers run whose weights are not on a device of their own.
    """
    count = network.config.get_text_config().num_hidden_layers
    placed: DeviceMap = getattr(network, "hf_device_map", {})
    stacks = (
        name
        for name, module in network.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == count
    )
    stack = next(stacks, "")
    return [_device(placed, f"{stack}.{number}", main) for number in range(count)]


def _device(placed: DeviceMap, name: str, main: torch.device) -> torch.device:
    while name and name not in placed:
        name = name.rpartition(".")[0]
    found = placed.get(name, main)
    if isinstance(found, int):
        return torch.device("cuda", found)
    return found if isinstance(found, torch.device) else main
