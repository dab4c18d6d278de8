"""Which networks write texts: also those that read images around a causal part, for text only."""

import logging
import re
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)

from adafuse.errors import UserError

logger = logging.getLogger(__name__)

_CAUSAL = re.compile("CausalLM|LMHead|ConditionalGeneration|Vision2Seq|ImageTextToText")
_NEAR = 0.05
"""So far may the same logit be from itself in a longer text, as a share of the largest."""


def factory_of(config: PreTrainedConfig) -> Any:
    """Return the class of transformers that loads a network: the causal one, where there is one."""
    return AutoModelForImageTextToText if is_wrapper(config) else AutoModelForCausalLM


def is_wrapper(config: PreTrainedConfig) -> bool:
    """Whether transformers knows a network only as one that also reads images."""
    causal, images = AutoModelForCausalLM._model_mapping, AutoModelForImageTextToText._model_mapping
    return type(config) in images and type(config) not in causal


def check_head(path: str, config: PreTrainedConfig) -> None:
    """Refuse a classifier or the like, whose trained output layer would be left out."""
    saved = config.architectures or []
    own = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if own or not saved or any(map(_CAUSAL.search, saved)):
        return
    if any("For" in name for name in saved):
        raise UserError(
            f"model {path!r} was saved as {saved[0]}, which is no language model; name one that is"
        )
    told = "%s was saved as %s; if it makes embeddings or rewards, it cannot write texts"
    logger.warning(told, path, saved[0])


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
