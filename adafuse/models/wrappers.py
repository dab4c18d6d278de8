"""Networks that also read images, around a causal text part: how they are loaded, for text only."""

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)

from adafuse.errors import UserError

_NEAR = 0.05
"""So far may the same logit be from itself in a longer text, as a share of the largest."""


def factory_of(config: PreTrainedConfig) -> Any:
    """Return the class of transformers that loads a network: the causal one, where there is one."""
    return AutoModelForImageTextToText if is_wrapper(config) else AutoModelForCausalLM


def is_wrapper(config: PreTrainedConfig) -> bool:
    """Whether transformers knows a network only as one that also reads images."""
    causal, images = AutoModelForCausalLM._model_mapping, AutoModelForImageTextToText._model_mapping
    return type(config) in images and type(config) not in causal


@torch.inference_mode()
def check_text_only(network: PreTrainedModel, name: str) -> None:
    """Refuse a network that cannot write without images, or reads a text in both directions."""
    embeddings = next(network.get_input_embeddings().parameters())
    ids = torch.arange(1, 5, device=embeddings.device)[None]
    try:
        both, alone = (network(input_ids=given).logits[0, 1].float() for given in (ids, ids[:, :2]))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        kind = network.config.model_type
        raise UserError(
            f"model {name!r} ({kind}) cannot write without images; give a model of text"
        ) from error
    if not (both - alone).abs().max() <= _NEAR * alone.abs().max():
        raise UserError(
            f"model {name!r} ({network.config.model_type}) reads a text in both directions; fused"
            " decoding needs causal language models"
        )
