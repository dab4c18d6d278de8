"""The four toy architectures, each with at most two million parameters."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    InternLM3Config,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

MAX_POSITIONS = 8192


@dataclass(frozen=True)
class Architecture:
    """A family's code and sizes; ``other_ends`` are end tokens beside the tokenizer's own."""

    model_class: Any
    config_class: Any
    hidden: int
    layers: int
    inner: int
    heads: int
    kv_heads: int
    other_ends: tuple[str, ...] = ()
    extra: tuple[tuple[str, Any], ...] = ()

    def config(self, tokenizer: PreTrainedTokenizerFast) -> Any:
        """The configuration for a vocabulary as large as the tokenizer's."""
        return self.config_class(
            vocab_size=len(tokenizer),
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            intermediate_size=self.inner,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.hidden // self.heads,
            tie_word_embeddings=True,
            max_position_embeddings=MAX_POSITIONS,
            initializer_range=0.04,
            bos_token_id=tokenizer.bos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            **dict(self.extra),
        )


ARCHITECTURES = {
    "mistral": Architecture(
        MistralForCausalLM, MistralConfig, 144, 4, 432, 4, 2, extra=(("sliding_window", None),)
    ),
    "llama": Architecture(
        LlamaForCausalLM, LlamaConfig, 144, 4, 432, 4, 4, other_ends=("<|end_of_text|>",)
    ),
    "qwen3": Architecture(
        Qwen3ForCausalLM, Qwen3Config, 128, 5, 384, 4, 2, other_ends=("<|endoftext|>",)
    ),
    # The family has a configuration of its own and runs on Llama's code.
    "internlm3": Architecture(
        LlamaForCausalLM, InternLM3Config, 144, 4, 432, 4, 2, other_ends=("<|im_end|>",)
    ),
}


def build_model(name: str, tokenizer: PreTrainedTokenizerFast, seed: int) -> PreTrainedModel:
    """An untrained model ``name`` for ``tokenizer``, with its generation config filled in."""
    torch.manual_seed(seed)
    architecture = ARCHITECTURES[name]
    model: PreTrainedModel = architecture.model_class(architecture.config(tokenizer))
    end_tokens = (tokenizer.eos_token, *architecture.other_ends)
    ends = [tokenizer.convert_tokens_to_ids(token) for token in end_tokens]
    end_ids = ends[0] if len(ends) == 1 else ends
    model.config.eos_token_id = end_ids
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=end_ids,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
    )
    return model
