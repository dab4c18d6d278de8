"""Checkpoints that are quantized already: made by the libraries, decoded with, or refused."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    FineGrainedFP8Config,
    GptOssConfig,
    TorchAoConfig,
)
from transformers.integrations.finegrained_fp8 import Fp8Quantize

from adafuse.engine.choice import way_of
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models import quantization as module
from adafuse.models.doctor import Load, examination
from adafuse.models.language_model import loaded
from adafuse.models.quantization import dequantized_bytes
from adafuse.models.spec import ModelEntry, ModelSpec
from tests.conftest import DEVICE, toy_path
from tests.support.tiny import random_model

PROMPTS = ["Question: Who founded the town of Orrin?\nAnswer:", "a b c"]
IDS = torch.arange(20, 60, device=DEVICE)[None]
Made = Callable[[str], Path]


def write(folder: Path, weights: dict[str, torch.Tensor], settings: Any) -> None:
    """Replace the weights of a folder, and what its config says of their quantization."""
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))


def fp8(plain: Path, folder: Path) -> None:
    """Write FP8 in blocks of 128, as the checkpoints of DeepSeek and Qwen3 are."""
    settings = FineGrainedFP8Config(modules_to_not_convert=["lm_head"])
    quantize = Fp8Quantize(SimpleNamespace(quantization_config=settings))
    shutil.copytree(plain, folder)
    weights = {}
    for name, weight in load_file(plain / "model.safetensors").items():
        inside = ".layers." in name and weight.dim() == 2
        weights |= quantize.convert({name: weight}) if inside else {name: weight}
    write(folder, weights, settings.to_dict())


def mxfp4(plain: Path, folder: Path) -> None:
    """Write experts in MXFP4 (OCP Microscaling Formats 1.0), as gpt-oss has them.

    The numbers of 4 bits are E2M1; a block of 32 shares a power of two.
    """
    tokenizer = AutoTokenizer.from_pretrained(plain)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "head_dim": 32, "num_local_experts": 4}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(
        GptOssConfig(
            vocab_size=len(tokenizer) + 8,
            num_experts_per_tok=2,
            sliding_window=16,
            initializer_range=0.1,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            eos_token_id=tokenizer.eos_token_id,
            **sizes,
            **layers,
        )
    ).to(torch.bfloat16)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    numbers = torch.cat([numbers, -numbers])
    weights = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            weights[name] = weight
            continue
        blocks = weight.float().transpose(1, 2).unflatten(-1, (-1, 32))
        power = blocks.abs().amax(-1).log2().floor() - 2
        codes = ((blocks / 2 ** power[..., None])[..., None] - numbers).abs().argmin(-1)
        weights[f"{name}_blocks"] = (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8)
        weights[f"{name}_scales"] = (power + 127).to(torch.uint8)
    write(folder, weights, {"quant_method": "mxfp4"})


def saved(plain: Path, folder: Path, settings: Any) -> None:
    """Let transformers quantize a model and save it."""
    AutoModelForCausalLM.from_pretrained(
        plain, quantization_config=settings, device_map={"": "cpu"}, dtype=torch.bfloat16
    ).save_pretrained(folder)
    AutoTokenizer.from_pretrained(plain).save_pretrained(folder)


def bitsandbytes(plain: Path, folder: Path, bits: int) -> None:
    pytest.importorskip("bitsandbytes")
    saved(plain, folder, BitsAndBytesConfig(**{f"load_in_{bits}bit": True}))


def torchao(plain: Path, folder: Path) -> None:
    configs = pytest.importorskip("torchao.quantization")
    saved(plain, folder, TorchAoConfig(configs.Int8WeightOnlyConfig()))


def compressed(plain: Path, folder: Path, scheme: str) -> None:
    """Let compressed-tensors compress a model, by the range of each of its weights."""
    pytest.importorskip("compressed_tensors")
    from compressed_tensors import quantization as ct
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization.utils import calculate_qparams

    network = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16)
    groups = {"all": ct.preset_name_to_scheme(scheme, ["Linear"])}
    ct.apply_quantization_config(
        network, ct.QuantizationConfig(config_groups=groups, ignore=["lm_head"])
    )
    for part in network.modules():
        if (found := getattr(part, "quantization_scheme", None)) is None:
            continue
        size = found.weights.group_size or part.weight.shape[1]
        pieces = part.weight.data.unflatten(1, (-1, size))
        scale, zero = calculate_qparams(pieces.amin(-1), pieces.amax(-1), found.weights)
        part.weight_scale.data.copy_(scale.reshape(part.weight_scale.shape))
        if hasattr(part, "weight_zero_point"):
            part.weight_zero_point.data.copy_(zero.reshape(part.weight_zero_point.shape))
        part.quantization_status = ct.QuantizationStatus.FROZEN
    compressor = ModelCompressor.from_pretrained_model(network)
    compressor.compress_model(network)
    network.save_pretrained(folder)
    compressor.update_config(folder)
    AutoTokenizer.from_pretrained(plain).save_pretrained(folder)


def gptqmodel(plain: Path, folder: Path, method: str) -> None:
    """Let GPTQModel quantize to 4 bits."""
    library = pytest.importorskip("gptqmodel")
    kinds = pytest.importorskip("gptqmodel.quantization")
    settings = {"quant_method": kinds.METHOD.AWQ, "format": kinds.FORMAT.GEMM}
    config = library.QuantizeConfig(bits=4, group_size=32, **settings if method == "awq" else {})
    model = library.GPTQModel.load(str(plain), config)
    model.quantize([f"{PROMPTS[0] * 4} {number}" for number in range(32)], batch_size=1)
    model.save(str(folder))
    AutoTokenizer.from_pretrained(plain).save_pretrained(folder)


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "fp8": fp8,
    "mxfp4": mxfp4,
    "bitsandbytes, 8 bits": lambda plain, folder: bitsandbytes(plain, folder, 8),
    "bitsandbytes, 4 bits": lambda plain, folder: bitsandbytes(plain, folder, 4),
    "compressed-tensors, W4A16": lambda plain, folder: compressed(plain, folder, "W4A16"),
    "compressed-tensors, FP8": lambda plain, folder: compressed(plain, folder, "FP8_DYNAMIC"),
    "torchao": torchao,
    "gptq": lambda plain, folder: gptqmodel(plain, folder, "gptq"),
    "awq": lambda plain, folder: gptqmodel(plain, folder, "awq"),
}
LOAD = Load(rows=1, prompt_tokens=8, max_new_tokens=8)
DENSE = ("fp8", "mxfp4", "compressed-tensors, W4A16", "compressed-tensors, FP8")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in bfloat16 whose matrices can be cut into blocks of 128."""
    folder = tmp_path_factory.mktemp("plain") / "model"
    sizes = {"hidden_size": 256, "intermediate_size": 512, "initializer_range": 0.1}
    random_model(toy_path("llama"), folder, seed=0, **sizes)
    weights = load_file(folder / "model.safetensors")
    halves = {name: weight.to(torch.bfloat16) for name, weight in weights.items()}
    write(folder, halves, None)
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    return folder


@pytest.fixture(scope="module")
def made(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Returns the folder of a quantized checkpoint."""
    parent = tmp_path_factory.mktemp("quantized")

    def make(kind: str) -> Path:
        if not (parent / kind).is_dir():
            KINDS[kind](plain, parent / kind)
        return parent / kind

    return make


def ensemble_of(folder: Path, **settings: Any) -> Ensemble:
    models = [folder, toy_path("mistral")]
    return Ensemble.from_pretrained(models, **{"device": DEVICE, "dtype": "float32"} | settings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_quantized_checkpoint_decodes_alike_in_both_engines(kind: str, made: Made) -> None:
    ensemble = ensemble_of(made(kind))
    (first, _) = loaded(ensemble.models, "the test")
    assert way_of(first).tree
    settings: Any = {"max_new_tokens": 8, "branching": 2}
    plain = ensemble.generate(PROMPTS, engine="reference", **settings)
    tree = ensemble.generate(PROMPTS, batch_size=2, **settings)
    assert [result.text for result in tree] == [result.text for result in plain]
    assert all(result.stop_reason != "error" for result in tree)


def logits(network: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = network(input_ids=IDS).logits.float().log_softmax(-1)
    return found


@pytest.mark.parametrize("kind", ["fp8", "compressed-tensors, FP8", "bitsandbytes, 8 bits"])
def test_it_computes_nearly_what_the_model_did_before(kind: str, made: Made, plain: Path) -> None:
    before = logits(loaded(ensemble_of(plain).models, "it")[0].network)
    after = logits(loaded(ensemble_of(made(kind)).models, "it")[0].network)
    assert 1e-4 < (before.exp() * (before - after)).sum(-1).mean() < 0.1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dequantized_weights_and_the_others_have_the_dtype_that_was_asked_for(
    dtype: str, made: Made
) -> None:
    network = loaded(ensemble_of(made("fp8"), dtype=[dtype, "float32"]).models, "it")[0].network
    assert {weight.dtype for weight in network.parameters()} == {getattr(torch, dtype)}
    assert {each.dtype for each in network.buffers()} == {torch.float32}  # of rotary positions


@pytest.mark.parametrize("kind", KINDS)
def test_the_doctor_says_what_it_takes_in_memory(kind: str, made: Made) -> None:
    folder = made(kind)
    (facts,) = examination([ModelSpec(path=str(folder), device="cpu")], LOAD).models
    network = loaded(ensemble_of(folder).models, "it")[0].network
    if kind in DENSE:
        logits(network)  # compressed-tensors decompresses now
        held = sum(
            weight.nbytes
            for name, weight in network.named_parameters()
            if not re.search("scale|shape", name)
        )
        assert facts.weights == held
        assert facts.dtype == f"{kind.partition(',')[0]} in files, float32 in memory"
    else:
        assert facts.weights is not None
        assert 0.9 * _file_size(folder) < facts.weights < 2 * _file_size(folder)
        assert facts.dtype == kind.partition(",")[0]


def _file_size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def test_a_model_that_is_not_quantized_is_not_dequantized(plain: Path) -> None:
    spec = ModelSpec(path=str(plain), dtype="float32")
    assert dequantized_bytes(spec, AutoConfig.from_pretrained(plain)) is None


def copied(plain: Path, folder: Path, settings: Any) -> Path:
    """Copy a model without its weights, as one of the hub is before they are downloaded."""
    shutil.copytree(plain, folder)
    write(folder, {}, settings)
    (folder / "model.safetensors").unlink()
    return folder


@pytest.mark.parametrize(
    ("method", "packages"),
    [
        ("awq", "gptqmodel"),
        ("gptq", "gptqmodel optimum"),
        ("compressed-tensors", "compressed-tensors"),
        ("bitsandbytes", "bitsandbytes"),
        ("torchao", "torchao"),
    ],
)
def test_a_package_that_is_missing_is_named_before_weights_are_needed(
    method: str, packages: str, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    folder = copied(plain, tmp_path / "model", {"quant_method": method, "bits": 4})
    with pytest.raises(UserError, match=rf"is quantized \({method}\).*run pip install {packages},"):
        ensemble_of(folder)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"quant_method": "modelopt"}, r"\(modelopt\), which transformers .* cannot read; name"),
        ({"bits": 4}, r"is quantized \(an unnamed kind\), which cannot be read here"),
        ("fp8", r"its config has a value that does not fit: 'str' object has no .*to_dict"),
        ([], r"its config has a value that does not fit: 'list' object has no .*to_dict"),
        ({"quant_method": "fbgemm_fp8"}, r"\(fbgemm_fp8\), which cannot be read here \(.*GPU.*\)"),
    ],
)
def test_a_kind_that_cannot_be_read_here_is_refused_before_weights_are_needed(
    settings: Any, sentence: str, plain: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        ensemble_of(copied(plain, tmp_path / "model", settings))


def test_nothing_is_read_here_of_one_that_is_on_a_server(plain: Path, tmp_path: Path) -> None:
    from adafuse.models.language_model import load_config

    folder = str(copied(plain, tmp_path / "model", {"quant_method": "modelopt"}))
    assert load_config(ModelEntry(path=folder, server="http://127.0.0.1:1"))


def test_scales_that_the_config_says_nothing_of_are_not_left_out(
    made: Made, tmp_path: Path
) -> None:
    folder = shutil.copytree(made("fp8"), tmp_path / "model")
    write(folder, load_file(folder / "model.safetensors"), None)
    with pytest.raises(UserError, match=r"has weights '.*weight_scale_inv', which its config says"):
        ensemble_of(folder)


def test_scales_that_are_named_otherwise_are_not_left_out(made: Made, tmp_path: Path) -> None:
    folder = shutil.copytree(made("fp8"), tmp_path / "model")
    settings = json.loads((folder / "config.json").read_text())["quantization_config"]
    weights = load_file(folder / "model.safetensors").items()
    write(folder, {name.replace("_inv", ""): weight for name, weight in weights}, settings)
    with pytest.raises(UserError, match=r"has weights '.*weight_scale', which its config says"):
        ensemble_of(folder)


def test_biases_that_the_config_says_nothing_of_are_not_left_out(
    plain: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(plain, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.q_proj.bias"] = torch.ones(256)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"has weights 'model\.layers\.0.*q_proj\.bias', which"):
        ensemble_of(folder)
