"""Models of a given shape with random weights: shapes can be timed without a download."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from adafuse.errors import UserError
from adafuse.models.language_model import LanguageModel


def random_model(
    config: str, tokenizer: str, *, device: torch.device, dtype: torch.dtype, seed: int
) -> LanguageModel:
    """Return a model of the shape of a configuration file over the tokenizer of a folder.

    Raises:
        UserError: no such configuration, or fewer rows in it than the tokenizer has ids.
    """
    if not Path(config).exists():
        raise UserError(f"{config!r} does not exist; give a config.json or its folder")
    shape = AutoConfig.from_pretrained(config)
    texts = AutoTokenizer.from_pretrained(tokenizer)
    if shape.get_text_config().vocab_size < len(texts):
        raise UserError(f"{config!r} has a vocabulary smaller than the tokenizer {tokenizer!r}")
    torch.manual_seed(seed)
    with torch.device(device):
        factory: Any = AutoModelForCausalLM
        network = factory.from_config(shape, dtype=dtype).eval()
    ends = frozenset({texts.eos_token_id})
    return LanguageModel(
        name=config,
        network=network,
        tokenizer=texts,
        end_ids=ends,
        stop_ids=ends,
        context=shape.get_text_config().max_position_embeddings,
    )
