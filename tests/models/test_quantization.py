"""Weights in 8 and 4 bits; where bitsandbytes is installed they are really made, on the CPU."""

import json
import shutil
from importlib.util import find_spec

import pytest
import torch
from transformers import AutoConfig

from adafuse.engine.choice import way_of
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models import quantization as module
from adafuse.models.placement import plan
from adafuse.models.quantization import quantization_config, without_outliers
from adafuse.models.spec import ModelSpec
from tests.conftest import toy_path
from tests.support.tiny import random_model

PROMPTS = ["Question: Who?\nAnswer:", "Question: Where?\nAnswer:"]
needs_bitsandbytes = pytest.mark.skipif(
    find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed"
)


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A model whose matrices bitsandbytes can pack on any CPU."""
    return wide_model(tmp_path_factory.mktemp("wide"), initializer_range=0.1)


def wide_model(folder, initializer_range):
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4}
    shape["initializer_range"] = initializer_range
    return random_model(toy_path("llama"), folder, seed=0, **shape)


def load(path, **settings):
    return Ensemble.from_pretrained([path], device="cpu", **settings).models[0]


def test_an_unknown_quantization_is_one_sentence():
    with pytest.raises(UserError, match="unknown quantization 'int3'; known are: int8, int4"):
        load(toy_path("llama"), quantization="int3")


def test_without_bitsandbytes_it_is_refused_before_any_file_is_read(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"'int8' needs bitsandbytes.*'\.\[quantized\]'"):
        load("/nowhere/model", quantization="int8")


def test_weights_that_are_quantized_already_are_refused(tmp_path, monkeypatch):
    copy = shutil.copytree(toy_path("llama"), tmp_path / "llama")
    config = json.loads((copy / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (copy / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("adafuse.models.placement.check_quantization", lambda *_: None)
    with pytest.raises(UserError, match=r"is quantized already.*leave out quantization 'int4'"):
        load(str(copy), quantization="int4")


def test_four_bits_are_normal_floats_multiplied_in_bfloat16():
    config = quantization_config("int4")
    assert (config.load_in_4bit, config.bnb_4bit_quant_type) == (True, "nf4")
    assert config.bnb_4bit_compute_dtype == torch.bfloat16
    assert quantization_config("int8").load_in_8bit
    assert quantization_config(None) is None


@needs_bitsandbytes
def test_a_device_that_bitsandbytes_does_not_know_is_one_sentence(monkeypatch):
    monkeypatch.setattr("bitsandbytes.supported_torch_devices", {"cuda"})
    with pytest.raises(UserError, match="'int8' cannot run on cpu with bitsandbytes"):
        load("/nowhere/model", quantization="int8")


@needs_bitsandbytes
@pytest.mark.parametrize(("quantization", "share"), [("int8", 0.5), ("int4", 0.3)])
def test_matrices_take_as_many_bits_as_were_asked_for(wide, quantization, share):
    whole, small = (
        load(wide, dtype="bfloat16"),
        load(wide, dtype="bfloat16", quantization=quantization),
    )
    sizes = [sum(_matrices(model.network)) for model in (whole, small)]
    assert sizes[1] <= share * sizes[0]
    assert small.network.dtype == torch.bfloat16


def _matrices(network):
    layers = network.model.layers.named_parameters()
    return [p.numel() * p.element_size() for name, p in layers if "proj.weight" in name]


@needs_bitsandbytes
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_a_quantized_model_decodes_alike_in_both_engines(wide, quantization):
    paths, settings = [wide, toy_path("mistral")], {"dtype": "float32", "device": "cpu"}
    ensemble = Ensemble.from_pretrained(paths, quantization=[quantization, None], **settings)
    assert way_of(ensemble.models[0]).tree
    tree, plain = (
        ensemble.generate(PROMPTS, max_new_tokens=6, engine=engine)
        for engine in ("tree", "reference")
    )
    assert [result.text for result in tree] == [result.text for result in plain]
    assert all(result.stop_reason != "error" for result in tree)


@needs_bitsandbytes
def test_outliers_of_int8_do_not_keep_a_model_from_the_tree_engine(tmp_path):
    model = load(wide_model(tmp_path, initializer_range=0.5), quantization="int8")
    matrices = [each for each in model.network.modules() if type(each).__name__ == "Linear8bitLt"]
    with without_outliers(model.network):
        assert {matrix.state.threshold for matrix in matrices} == {0.0}
    assert {matrix.state.threshold for matrix in matrices} == {6.0}
    assert way_of(model).tree


@needs_bitsandbytes
def test_rows_that_a_cpu_cannot_pack_are_one_sentence():
    with pytest.raises(UserError, match=r"cannot be int4 on a CPU.*\(144 here\).*use int8"):
        load(toy_path("llama"), quantization="int4")


@needs_bitsandbytes
def test_a_spread_is_planned_by_the_size_of_the_quantized_weights(wide):
    room = {0: 800_000, 1: 800_000}
    for quantization, fits in ((None, False), ("int4", True)):
        spec = ModelSpec(path=wide, device="balanced", dtype="float32", quantization=quantization)
        found = plan(spec, AutoConfig.from_pretrained(wide), room)
        assert ("disk" not in found.values()) == fits
