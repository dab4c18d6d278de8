"""How many examples fit into memory at a time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedConfig

from adafuse.errors import UserError
from adafuse.models.language_model import LanguageModel
from adafuse.models.memory import free_memory
from adafuse.models.spread import layer_devices

MOST_ROWS = 64
"""More rows gain little, and their results take long to come."""
TREE_NODES = 64
"""Per example so many uncommitted tokens, and rows of log-probabilities, are allowed for."""
SHARE = 0.8
"""The part of the free memory that keys, values and log-probabilities may take."""

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes that one example needs on a device of one model."""

    device: torch.device
    size: int


def slots(model: LanguageModel, longest: int) -> int:
    """Return how many tokens an example of at most `longest` ids and its tree come to."""
    return min(longest, model.context) + TREE_NODES


def demands(model: LanguageModel, longest: int) -> list[Demand]:
    """Return what an example of at most `longest` ids, prompt included, needs on each device.

    Keys and values of every token and tree node, where each layer is, and a float32 row over the
    vocabulary per node, where the logits come out.
    """
    per_layer = slots(model, longest) * cache_bytes(model.network.config, model.network.dtype)
    layers = Counter(layer_devices(model.network, model.device))
    sizes = {model.device: TREE_NODES * 4 * model.vocabulary}
    for device, count in layers.items():
        sizes[device] = sizes.get(device, 0) + count * per_layer
    return [Demand(device, size) for device, size in sizes.items()]


def cache_bytes(config: PreTrainedConfig, dtype: torch.dtype) -> int:
    """Return the bytes of the keys and values of one token in one layer."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * int(heads) * int(head) * dtype.itemsize


def rows_that_fit(needs: Sequence[Demand], examples: int) -> int:
    """Return how many of `examples` can be decoded at a time on every device.

    Raises:
        UserError: not even one.
    """
    needed: dict[torch.device, int] = {}
    for each in needs:
        needed[each.device] = needed.get(each.device, 0) + each.size
    rows = min(MOST_ROWS, max(1, examples))
    for device, size in needed.items():
        free = int(SHARE * free_memory(device))
        if size > free:
            raise UserError(
                f"one example needs {size / _GIB:.2f} GiB on {device} beside the models, and"
                f" {free / _GIB:.2f} GiB may be taken; lower max_new_tokens, shorten the prompts,"
                " or give the models other or more devices, or a smaller dtype"
            )
        rows = min(rows, free // size)
    return rows
