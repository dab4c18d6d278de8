"""Models with random weights, made in a moment, for tests that must not depend on training."""

from pathlib import Path

import torch
from transformers import (
    AutoTokenizer,
    Gemma2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    PreTrainedModel,
    Qwen3Config,
)

SMALL = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.5,
}
"""Two layers whose random weights are large enough to give clear favourites."""

WINDOW = {"vocab_size": 700, "sliding_window": 12}
SLIDING = {
    "every layer slides": MistralConfig(**SMALL, **WINDOW),
    "layers in turn": Gemma2Config(**SMALL, **WINDOW, head_dim=4),
    "upper layers slide": Qwen3Config(
        **SMALL, **WINDOW, head_dim=4, use_sliding_window=True, max_window_layers=1
    ),
}


def random_model(
    tokenizer_folder: str | Path, out: Path, *, seed: int, context: int = 4096, **changes
) -> str:
    """Write a two-layer Llama with random weights over the tokenizer of a folder."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    network = random_llama(len(tokenizer) + 8, seed=seed, context=context, **changes)
    network.generation_config.eos_token_id = tokenizer.eos_token_id
    network.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return str(out)


def random_llama(vocabulary: int, *, seed: int, context: int = 4096, **changes) -> PreTrainedModel:
    """A small Llama with random weights, without special tokens."""
    torch.manual_seed(seed)
    settings = {
        "vocab_size": vocabulary,
        "max_position_embeddings": context,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return LlamaForCausalLM(LlamaConfig(**(SMALL | settings | changes))).eval()
