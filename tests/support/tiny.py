"""Models with random weights, made in a moment, for tests that must not depend on training."""

from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel


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
    """A Llama of 16 dimensions whose random weights are large enough to give clear favourites."""
    torch.manual_seed(seed)
    settings = {
        "vocab_size": vocabulary,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": context,
        "initializer_range": 0.5,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return LlamaForCausalLM(LlamaConfig(**(settings | changes))).eval()
