"""What a config says of how a network sees positions: windows, and rotary factors by length."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
WINDOWS = {SLIDING: "sliding_window", CHUNKED: "attention_chunk_size"}
"""What limits the attention of kinds of layers, by the names of configs."""

_TRAINED = "original_max_position_embeddings"
_FIXED_ROPES = frozenset({None, "default", "linear", "llama3", "proportional", "yarn"})
"""Rotary embeddings with the same factors whatever the length of a text is."""
_OWN_WINDOW = re.compile(
    r"^(sliding_|attention_|keep_)?window_size$|^index_topk|^local_att.*(n|len)$"
)
"""Limits of what a token sees that are not `sliding_window`, which the tree engine knows."""
_PROBED_WINDOW = 4


@dataclass(frozen=True, slots=True)
class RopeLengths:
    """Which lengths of a text have the same rotary factors: those up to `border` have.

    So have all beyond with `longrope`, none with `dynamic`. One forward has one set of factors, for
    all of its rows.
    """

    border: int = sys.maxsize
    all_beyond: bool = True

    @classmethod
    def of(cls, config: PreTrainedConfig) -> "RopeLengths":
        text = config.get_text_config()
        parameters = (
            getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
        )
        ropes = [parameters, *(rope for rope in parameters.values() if isinstance(rope, dict))]
        varying = [rope for rope in ropes if _kind(rope) not in _FIXED_ROPES]
        if not varying:
            return cls()
        borders = [rope.get(_TRAINED) for rope in varying]
        borders += [getattr(text, name, None) for name in (_TRAINED, "max_position_embeddings")]
        border = min((border for border in borders if border), default=0)
        return cls(int(border), all(_kind(rope) == "longrope" for rope in varying))

    @property
    def vary(self) -> bool:
        return self.border < sys.maxsize

    def factors(self, length: int) -> int:
        """Return a number that two lengths share if their factors are the same."""
        if length <= self.border:
            return 0
        return 1 if self.all_beyond else length


def _kind(rope: dict[str, Any]) -> str | None:
    kind: str | None = rope.get("rope_type", rope.get("type"))
    return kind


def unknown_attention(config: PreTrainedConfig) -> str | None:
    """Return what limits the attention of a network in a way that the tree engine does not know."""
    text = config.get_text_config()
    if odd := sorted({*(getattr(text, "layer_types", None) or ())} - {FULL, *WINDOWS}):
        return f"layers of type {', '.join(odd)}"
    if getattr(text, "sliding_window", None):
        return None
    values: dict[str, Any] = text.to_dict()
    named = (name for name, value in values.items() if value and _OWN_WINDOW.match(name))
    return next((f"{name} {values[name]}" for name in named), None)


def default_kind(config: PreTrainedConfig) -> str:
    """Return the kind of all layers of a config that does not name kinds."""
    return next((kind for kind, name in WINDOWS.items() if getattr(config, name, None)), FULL)


def constant_scales(config: PreTrainedConfig) -> int:
    """Return up to which length attention has the same scale.

    Llama 4 takes it from the number of ids in the cache, whatever positions it is given.
    """
    text = config.get_text_config()
    if not getattr(text, "attn_temperature_tuning", False):
        return sys.maxsize
    return int(text.floor_scale) - 1


@contextmanager
def narrow_window(network: PreTrainedModel) -> Iterator[None]:
    """Give a network that slides, or has chunks, a window of a few tokens, which few go beyond."""
    text = network.config.get_text_config()
    windows = {name: int(getattr(text, name, None) or 0) for name in WINDOWS.values()}
    windows = {name: size for name, size in windows.items() if size}
    for name, size in windows.items():
        setattr(text, name, min(size, _PROBED_WINDOW))
    try:
        yield
    finally:
        for name, size in windows.items():
            setattr(text, name, size)


def forget_lengths(network: PreTrainedModel) -> None:
    """Set dynamic rotary embeddings back to their first factors.

    transformers keeps those of the longest text so far for all that are shorter.
    """
    for module in network.modules():
        for name in [name for name in vars(module) if name.endswith("max_seq_len_cached")]:
            factors = name.replace("max_seq_len_cached", "inv_freq")
            first = getattr(module, factors.replace("inv_freq", "original_inv_freq"), None)
            if first is not None:
                setattr(module, factors, first.clone().to(getattr(module, factors).device))
                setattr(module, name, module.original_max_seq_len)
