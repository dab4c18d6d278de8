"""Models spread over devices: accelerate's hooks run for real, between memory and disk."""

import pytest
import torch
from transformers import AutoConfig

from adafuse.engine.choice import way_of
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models import placement
from adafuse.models.placement import device_map, layer_devices, plan
from adafuse.models.spec import ModelSpec
from tests.conftest import toy_path

CPU, ONE, TWO = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)
MB = 10**6
PROMPTS = ["Question: Who founded Orrin?\nAnswer:", "Question: 3 plus 4?\n", "Question: Where?\n"]


def half_on_disk(spec, config):
    """Every second layer is read from the disk whenever it runs."""
    layers = {f"model.layers.{i}": ("cpu", "disk")[i % 2] for i in range(config.num_hidden_layers)}
    rest = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    return layers | rest | {"model.norm": "disk"}


@pytest.fixture(scope="module")
def spread_pair():
    """The default pair of the toy world, in pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adafuse.models.language_model.device_map", half_on_disk)
        return Ensemble.from_pretrained([toy_path("mistral"), toy_path("llama")], device="cpu")


def test_the_tree_engine_runs_a_model_in_pieces(spread_pair):
    for model in spread_pair.models:
        kinds = {parameter.device.type for parameter in model.network.parameters()}
        assert kinds == {"cpu", "meta"}
        assert way_of(model).tree


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_size": 2, "branching": 3},
        {"batch_size": "auto"},
        {"engine": "reference"},
        {"method": "unite"},
        {"method": "deepen"},
    ],
)
def test_a_model_in_pieces_writes_what_it_writes_in_one(pair, spread_pair, settings):
    whole, pieces = (
        e.generate(PROMPTS, max_new_tokens=12, **settings) for e in (pair, spread_pair)
    )
    assert [result.text for result in whole] == [result.text for result in pieces]
    assert [result.rounds for result in whole] == [result.rounds for result in pieces]


def test_logits_come_out_where_ids_go_in(spread_pair):
    for model in spread_pair.models:
        # Whatever device the output layer is on: the hook of the whole network sends them back.
        assert model.network._hf_hook.io_same_device
        ids = torch.tensor([[5, 6]], device=model.device)
        assert model.network(input_ids=ids).logits.device == model.device


@pytest.fixture
def spec(monkeypatch):
    """Make the spec of a toy model that goes to two pretended CUDA devices."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    def make(device="balanced", dtype="float32"):
        return ModelSpec(path=toy_path("llama"), device=device, dtype=dtype)

    return make


@pytest.fixture
def config():
    return AutoConfig.from_pretrained(toy_path("llama"))


def test_balanced_uses_all_devices_and_sequential_fills_the_first(spec, config):
    room = {0: 100 * MB, 1: 100 * MB}
    assert set(plan(spec("balanced"), config, room).values()) == {0, 1}
    assert set(plan(spec("sequential"), config, room).values()) == {0}


def test_no_layer_is_split_and_tied_weights_stay_together(spec, config):
    found = plan(spec(), config, {0: 100 * MB, 1: 100 * MB})
    assert found["model.embed_tokens"] == found["lm_head"]
    assert {name for name in found if ".layers." in name} == {
        f"model.layers.{number}" for number in range(config.num_hidden_layers)
    }


def test_a_smaller_dtype_takes_less(spec, config):
    room = {0: 3 * MB, 1: 3 * MB}
    assert "disk" in plan(spec(), config, room).values()
    assert "disk" not in plan(spec(dtype="bfloat16"), config, room).values()


def test_a_model_that_does_not_fit_is_refused_before_its_weights_are_read(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(placement, "free_memory", lambda _: MB)

    def read(*_, **__):
        raise AssertionError("weights were read")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", read)
    sentence = r"does not fit on cuda:0\+cuda:1 \(0\.00, 0\.00 GiB may be taken\); name more"
    for device in ("balanced", "sequential", "cuda:0+cuda:1"):
        with pytest.raises(UserError, match=sentence):
            Ensemble.from_pretrained([toy_path("llama")], device=device)


def test_only_the_devices_that_are_named_are_asked(monkeypatch, spec, config):
    asked = []

    def free(device):
        asked.append(device)
        return 100 * MB

    monkeypatch.setattr(placement, "free_memory", free)
    assert set(device_map(spec(), config).values()) == {0, 1}
    assert asked == [ONE, TWO]


def test_a_model_on_one_device_has_all_its_layers_there(pair):
    assert layer_devices(pair.models[0].network, CPU) == [CPU] * 4


def test_layers_that_are_read_from_the_disk_run_where_ids_go_in(spread_pair):
    for model in spread_pair.models:
        assert layer_devices(model.network, ONE) == [CPU, ONE, CPU, ONE]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices")
@pytest.mark.parametrize("device", ["balanced", "cuda:0+cuda:1"])
def test_two_gpus_together_give_the_texts_of_the_cpu(pair, device):
    paths = [toy_path("mistral"), toy_path("llama")]
    spread_out = Ensemble.from_pretrained(paths, device=device, dtype="float32")
    for model in spread_out.models:
        assert set(layer_devices(model.network, model.device)) == {ONE, TWO}
    whole, pieces = (e.generate(PROMPTS, max_new_tokens=12) for e in (pair, spread_out))
    assert [result.text for result in whole] == [result.text for result in pieces]
