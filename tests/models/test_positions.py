import pytest
from transformers import (
    GPTNeoConfig,
    Llama4TextConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    Qwen3NextConfig,
)

from adafuse.models.positions import RopeLengths, constant_scales, unknown_attention
from tests.support.architectures import LONGROPE


def rope(**parameters):
    """The lengths of a config that is saved with these rotary parameters."""
    return RopeLengths.of(LlamaConfig(rope_parameters={"rope_theta": 10000.0, **parameters}))


def test_most_rotary_embeddings_have_the_same_factors_for_all_lengths():
    assert not RopeLengths.of(LlamaConfig()).vary
    assert not rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16).vary
    assert not RopeLengths.of(GPTNeoConfig()).vary


def test_longrope_has_two_sets_of_factors_and_dynamic_one_for_each_length_beyond():
    long, dynamic = rope(**LONGROPE), rope(rope_type="dynamic", factor=2.0)
    assert [long.factors(n) for n in (1, 16, 17, 40)] == [0, 0, 1, 1]
    assert dynamic.border == LlamaConfig().max_position_embeddings
    assert len({dynamic.factors(dynamic.border + n) for n in range(4)}) == 4


def test_rope_of_some_layers_and_of_older_configs_counts():
    layers = {"full_attention": LONGROPE, "sliding_attention": {"rope_type": "default"}}
    config = LlamaConfig()
    config.rope_parameters = layers
    assert RopeLengths.of(config).border == 16
    del config.rope_parameters
    config.rope_scaling = {"type": "su", "short_factor": [1.0]}
    config.original_max_position_embeddings = 32
    assert RopeLengths.of(config).border == 32


def test_phi3_says_where_its_long_factors_begin():
    saved = Phi3Config(
        rope_scaling={"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48},
        original_max_position_embeddings=4096,
        max_position_embeddings=131072,
    )
    assert RopeLengths.of(saved).border == 4096


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        (GPTNeoConfig(), "window_size 256"),
        (MistralConfig(sliding_window=4096), None),
        (MistralConfig(sliding_window=None), None),
        (LlamaConfig(), None),
        (Llama4TextConfig(), None),
        (Qwen3NextConfig(), "layers of type linear_attention"),
    ],
)
def test_attention_that_the_tree_engine_does_not_know_is_named(config, limit):
    assert unknown_attention(config) == limit


def test_the_scales_of_llama_4_are_constant_up_to_a_length():
    assert constant_scales(Llama4TextConfig(floor_scale=64)) == 63
    assert constant_scales(LlamaConfig()) == constant_scales(
        Llama4TextConfig(attn_temperature_tuning=False)
    )
