"""Tiny random networks of the causal architectures of transformers, and how each goes on alone."""

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tests.conftest import DEVICE

VOCABULARY = 64

_WINDOWS = (
    "sliding_window",
    "sliding_window_size",
    "window_size",
    "attention_window_size",
    "keep_window_size",
    "local_attention",
    "attention_chunk_size",
    "index_topk",
)
SIZES = {
    "vocab_size": VOCABULARY,
    "initializer_range": 0.3,
    "is_decoder": True,
    "use_sliding_window": True,
    "max_window_layers": 1,
    "rotary_dim": 4,
    "head_dim": 8,
    "d_kv": 8,
    "state_size": 4,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "hidden_dim", "dim"), 32),
    **dict.fromkeys(("embedding_size", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "decoder_ffn_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_layers", "num_key_value_heads", "num_experts_per_tok", "moe_k"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    "decoder_attention_heads": 4,
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    "moe_num_experts": 4,
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size"), 16),
    **dict.fromkeys(("shared_expert_intermediate_size", "q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 64),
    **dict.fromkeys(_WINDOWS, 8),
}
"""By the name of a config: two layers, a window of 8 tokens, large weights (clear favourites)."""
_OTHERS = (
    {},
    {"num_key_value_heads": 4},
    {"pad_token_id": 0, "bos_token_id": 1},
    {"head_dim": None},
)
"""What some architectures need instead; a head size of None is that of their config."""

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [1.5, 2.0, 3.0, 4.0],
    "original_max_position_embeddings": 16,
    "factor": 4.0,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}


_MAMBA = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 4,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}
_LINEAR = {
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 8),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 4),
}
STATEFUL = {
    "bamba": {**_MAMBA, "attn_layer_indices": [1]},
    "falcon_h1": {**_MAMBA, "mamba_d_ssm": 64},
    "granitemoehybrid": {**_MAMBA, "layer_types": ["linear_attention", "full_attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4},
    "lfm2": {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention"] * 2},
    "mamba": {},
    "mamba2": {"head_dim": 8, "num_heads": 8, "n_groups": 1, "chunk_size": 8},
    "minimax": {},
    "nemotron_h": {
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
        "ssm_state_size": 64,
        "n_groups": 1,
        "chunk_size": 8,
    },
    "olmo_hybrid": {},
    **dict.fromkeys(("qwen3_5_text", "qwen3_next"), _LINEAR),
    "recurrent_gemma": {"num_hidden_layers": 3, "lru_width": 32},
    "rwkv": {},
    "zamba2": {
        "layers_block_type": ["mamba", "hybrid"],
        "n_mamba_heads": 8,
        "mamba_headdim": 8,
        "mamba_d_state": 64,
        "chunk_size": 8,
    },
}
"""What networks with states need besides `SIZES`: small states, chunks shorter than a text.

With 64 numbers, a state shows that transformers computes a single token in another way."""
_RELATED = dict.fromkeys(
    ("qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen4_exp", "qwen4_exp_text", "bailing_hybrid"),
    _LINEAR,
)
_RELATED["lfm2_moe"] = {"layer_types": ["conv", "full_attention"]}


def tiny_config(kind: str, **changes):
    """A config of a model type with `SIZES` where it has such fields, and some changes."""
    default = AutoConfig.for_model(kind)
    if default.is_encoder_decoder:
        raise ValueError("an encoder-decoder, which is refused when it is loaded")
    default = default.get_text_config()
    names = default.to_dict()
    sizes = {name: size for name, size in SIZES.items() if name in names}
    sizes |= (STATEFUL | _RELATED).get(kind, {}) | changes
    return type(default)(**{k: v for k, v in sizes.items() if (k, v) != ("head_dim", None)})


def tiny_network(kind: str, **changes):
    """A random network of a model type that can run.

    Raises:
        ValueError: none of a few sets of sizes gives one.
    """
    reasons = []
    for others in _OTHERS:
        try:
            config = tiny_config(kind, **others, **changes)
            with torch.device("meta"):
                size = AutoModelForCausalLM.from_config(config).num_parameters()
            assert size < 10**7, f"{size} parameters"
            torch.manual_seed(0)
            network = AutoModelForCausalLM.from_config(config).eval()
            with torch.inference_mode():
                network(input_ids=torch.tensor([[3, 4, 5]]), use_cache=False)
        except Exception as error:  # noqa: BLE001 - whatever configs or networks do not take
            reasons.append(f"{type(error).__name__}: {error}"[:200])
            continue
        return network.to(DEVICE)
    raise ValueError(reasons[0])


def continued(network, prompt: list[int], count: int) -> list[int]:
    """What `generate` goes on with after a prompt, alone and without a cache."""
    generation = network.generation_config
    generation.eos_token_id, generation.pad_token_id = None, 0
    ids = torch.tensor([prompt], device=DEVICE)
    settings = {"use_cache": False, "do_sample": False, "max_new_tokens": count}
    made = network.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    return made[0, len(prompt) :].tolist()


def stateful_model(kind: str, tokenizer_folder: str, out: Path) -> str:
    """Write a random network whose layers keep states over the tokenizer of a folder."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    size = {"vocab_size": len(tokenizer) + 8, "max_position_embeddings": 4096}
    names = AutoConfig.for_model(kind).to_dict()
    network = tiny_network(kind, **{name: value for name, value in size.items() if name in names})
    network.generation_config.eos_token_id = tokenizer.eos_token_id
    network.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return str(out)
