"""How large a model is, without loading it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Gemma4TextConfig,
)

from adafuse.errors import UserError
from adafuse.models import files as model_size
from adafuse.models.files import check_whole, keys_now, weight_bytes
from adafuse.models.memory import cache_bytes
from tests.conftest import toy_path
from tests.support.tiny import random_llama


def saved(folder: Path, name: str, *tensors: torch.Tensor) -> None:
    folder.mkdir(exist_ok=True)
    save_file({str(n): each for n, each in enumerate(tensors)}, folder / name, {"format": "pt"})


def test_weights_count_in_the_dtype_that_they_are_loaded_as(tmp_path: Path) -> None:
    saved(tmp_path, "a.safetensors", torch.zeros(3, 4, dtype=torch.bfloat16))
    assert weight_bytes(str(tmp_path), None, "bfloat16") == 24
    assert weight_bytes(str(tmp_path), None, "float32") == 48


def test_all_files_count_and_quantized_weights_as_they_are_stored(tmp_path: Path) -> None:
    saved(tmp_path, "a.safetensors", torch.zeros(10))
    saved(tmp_path, "b.safetensors", torch.zeros(10), torch.zeros(7, dtype=torch.int8))
    assert weight_bytes(str(tmp_path), None, "float16") == 2 * 20 + 7


DUPLICATES = {
    "consolidated.safetensors": torch.zeros(50),
    "original/consolidated.00.pth": torch.zeros(50),
    "model.fp32.safetensors": torch.zeros(50),
    "weights_fp32.safetensors": torch.zeros(50),
    "pytorch_model.bin": torch.zeros(50),
    "pytorch_model-00001-of-00001.bin": torch.zeros(50),
    "model.gguf": torch.zeros(50),
    "other-00001-of-00001.safetensors": torch.zeros(50),
}


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("duplicate", DUPLICATES)
def test_weights_that_are_not_loaded_count_nowhere(
    tmp_path: Path, duplicate: str, sharded: bool
) -> None:
    (tmp_path / "config.json").write_text("{}")
    if sharded:
        saved(tmp_path, "first.safetensors", torch.zeros(3))
        saved(tmp_path, "second.safetensors", torch.zeros(4))
        named = {"a": "first.safetensors", "b": "second.safetensors", "c": "first.safetensors"}
        index = json.dumps({"metadata": {}, "weight_map": named})
        (tmp_path / "model.safetensors.index.json").write_text(index)
    else:
        saved(tmp_path, "model.safetensors", torch.zeros(7))
    before = keys_now([str(tmp_path)])
    assert weight_bytes(str(tmp_path), None, "bfloat16") == 14
    (tmp_path / duplicate).parent.mkdir(exist_ok=True)
    save_file({"0": DUPLICATES[duplicate]}, tmp_path / duplicate)
    weight_bytes.cache_clear()
    assert weight_bytes(str(tmp_path), None, "bfloat16") == 14
    (tmp_path / duplicate).write_bytes(b"torn")
    weight_bytes.cache_clear()
    check_whole(str(tmp_path), None)
    assert weight_bytes(str(tmp_path), None, "float32") == 28
    assert keys_now([str(tmp_path)]) == before
    name = "second.safetensors" if sharded else "model.safetensors"
    (tmp_path / name).write_bytes(b"torn")
    with pytest.raises(UserError, match=f"the file '{name}' of model .* is cut off"):
        check_whole(str(tmp_path), None)
    assert keys_now([str(tmp_path)]) != before


def test_the_weights_are_those_that_transformers_reads(tmp_path: Path) -> None:
    """A model whose shards have names of their own, beside a file of other weights."""
    network = random_llama(96, seed=0)
    network.save_pretrained(tmp_path, max_shard_size="20KB")
    index = tmp_path / "model.safetensors.index.json"
    text = index.read_text()
    for file in tmp_path.glob("model-*.safetensors"):
        file.rename(tmp_path / file.name.replace("model", "part"))
    index.write_text(text.replace('"model-', '"part-'))
    saved(tmp_path, "model-00009-of-00009.safetensors", torch.zeros(99))
    read = AutoModelForCausalLM.from_pretrained(tmp_path, use_safetensors=True)
    assert read.num_parameters() == network.num_parameters()
    assert weight_bytes(str(tmp_path), None, "float32") == 4 * network.num_parameters()


def test_weights_that_the_config_names_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"transformers_weights": "own.safetensors"}')
    saved(tmp_path, "own.safetensors", torch.zeros(5))
    saved(tmp_path, "model.safetensors", torch.zeros(7))
    assert weight_bytes(str(tmp_path), None, "float32") == 20


def test_consolidated_weights_alone_are_none(tmp_path: Path) -> None:
    saved(tmp_path, "consolidated.safetensors", torch.zeros(7))
    assert weight_bytes(str(tmp_path), None, "float32") is None


def test_a_toy_model_has_a_million_parameters() -> None:
    size = weight_bytes(toy_path("mistral"), None, "float32")
    assert size is not None and 4e6 < size < 6e6


@pytest.mark.parametrize(("quantization", "item"), [("int8", 1.0), ("int4", 0.5625)])
def test_quantized_are_the_linear_layers_but_not_the_head(
    tmp_path: Path, quantization: str, item: float
) -> None:
    network = random_llama(96, seed=0)
    network.save_pretrained(tmp_path)
    linear = sum(
        module.weight.numel()
        for name, module in network.named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    )
    others = sum(each.numel() for each in network.parameters()) - linear
    assert linear > 0 and others > 0
    whole = weight_bytes(str(tmp_path), None, "bfloat16")
    assert whole == 2 * (linear + others)
    found = weight_bytes(str(tmp_path), None, "bfloat16", quantization)
    assert found == item * linear + 2 * others


def test_experts_of_a_mixture_are_not_quantized(tmp_path: Path) -> None:
    name = "model.layers.0.mlp.experts.0.up_proj.weight"
    save_file({name: torch.zeros(4, 8)}, tmp_path / "model.safetensors", {"format": "pt"})
    assert weight_bytes(str(tmp_path), None, "float16", "int4") == 64


def test_pickled_weights_count_as_16_bits_each_unless_there_are_safetensors(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 100)
    (tmp_path / "training_args.bin").write_bytes(b"x" * 100)
    assert weight_bytes(str(tmp_path), None, "float32") == 200
    saved(tmp_path, "model.safetensors", torch.zeros(3))
    assert weight_bytes(str(tmp_path), None, "float16") == 6


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 40, b"\x02" + b"\0" * 7 + b"[}"])
def test_what_is_no_safetensors_file_has_no_known_size(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    assert weight_bytes(str(tmp_path), None, "float32") is None


def test_a_folder_without_weights_has_no_known_size(tmp_path: Path) -> None:
    assert weight_bytes(str(tmp_path), None, "float32") is None


def test_a_hub_model_is_looked_up_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    commit, store = "a" * 40, tmp_path / "models--org--cached"
    snapshot = store / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (store / "refs").mkdir()
    (store / "refs/main").write_text(commit)
    saved(snapshot, "model.safetensors", torch.zeros(5))
    assert weight_bytes("org/cached", None, "float32") == 20
    assert weight_bytes("org/cached", commit, "float16") == 10
    assert weight_bytes("org/cached", "b" * 40, "float32") is None
    assert weight_bytes("org/absent", None, "float32") is None
    assert model_size.cached_folder("no/valid name", None) is None


def test_layers_of_different_sizes_take_the_room_of_the_largest():
    sizes = {"num_hidden_layers": 6, "num_key_value_heads": 2, "head_dim": 8}
    config = Gemma4TextConfig(**sizes, global_head_dim=16)
    assert cache_bytes(config, torch.float32) == 2 * 4 * 2 * 16


def test_multi_head_latent_attention_takes_the_room_of_its_latents():
    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 12}
    ranks = {"q_lora_rank": None, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
    config = DeepseekV3Config(**sizes, **heads, **ranks, first_k_dense_replace=1)
    network = DeepseekV3ForCausalLM(config)
    (layer,) = network(torch.tensor([[1]]), use_cache=True).past_key_values.layers
    taken = (layer.keys.numel() + layer.values.numel()) * layer.keys.element_size()
    assert cache_bytes(config, torch.float32) == taken == 4 * (12 + 4)
