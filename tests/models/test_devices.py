"""Where models go, on pretended machines."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adafuse.errors import UserError
from adafuse.models.placement import Place, device_names, devices, dtype_of, resolved
from adafuse.models.spec import DeviceName, ModelSpec, model_specs

CPU = torch.device("cpu")
CARDS = tuple(torch.device("cuda", index) for index in range(4))


@pytest.fixture
def cards(monkeypatch):
    """Pretend that so many CUDA devices are here."""
    return lambda count: monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def places(device, count):
    """Where so many models go, and as what."""
    specs = resolved(model_specs(["model"] * count, device=device))
    return [device_names(spec) for spec in specs], [spec.dtype for spec in specs]


def test_one_name_serves_all_models_and_a_list_names_one_each(cards):
    cards(2)
    assert places("cpu", 3) == (["cpu"] * 3, ["float32"] * 3)
    assert places(["cpu"], 2)[0] == ["cpu", "cpu"]
    assert places(["cpu", "cuda:1"], 2) == (["cpu", "cuda:1"], ["float32", "bfloat16"])
    assert places("cuda", 1)[0] == ["cuda:0"]
    with pytest.raises(UserError, match="device: 2 given for 3 models"):
        places(["cpu", "cpu"], 3)


def test_auto_takes_the_cuda_devices_in_turn_or_the_cpu(cards):
    cards(0)
    assert places("auto", 2) == (["cpu", "cpu"], ["float32"] * 2)
    cards(2)
    assert places("auto", 3) == (["cuda:0", "cuda:1", "cuda:0"], ["bfloat16"] * 3)
    assert places(["auto", "auto"], 2)[0] == ["cuda:0", "cuda:1"]


def test_a_list_of_devices_spreads_one_model_over_these(cards):
    cards(4)
    assert devices("cuda:1+cuda:3") == (CARDS[1], CARDS[3])
    assert devices("cuda+cuda:1") == CARDS[:2]
    assert DeviceName.parse("cuda:1+cuda:3").strategy == "balanced"
    assert places(["cuda:0", "cuda:1+cuda:2"], 2)[0] == ["cuda:0", "cuda:1+cuda:2"]


@pytest.mark.parametrize("strategy", ["balanced", "sequential"])
def test_a_strategy_spreads_a_model_over_all_cuda_devices(cards, strategy):
    cards(4)
    specs = resolved(model_specs(["a", "b"], device=strategy))
    assert [devices(spec.device) for spec in specs] == [CARDS, CARDS]
    assert {DeviceName.parse(spec.device).strategy for spec in specs} == {strategy}


@pytest.mark.parametrize(
    ("count", "device", "sentence"),
    [
        (0, "gpu", "unknown device 'gpu'; use auto, cpu, cuda:0, a list such as cuda:0.cuda:1"),
        (0, "cuda:99", r"no device 'cuda:99': 0 CUDA devices were found; use auto"),
        (2, "cuda:0+cuda:2", r"no device 'cuda:2': 2 CUDA devices were found"),
        (0, "cuda:0+cuda:1", "no device 'cuda:0': "),
        (
            0,
            "balanced",
            "device 'balanced' spreads a model over CUDA devices, but there are none here",
        ),
        (2, "cuda:0+cuda:0", r"'cuda:0\+cuda:0' is not a list of different CUDA devices"),
        (2, "cuda+cuda:0", r"'cuda\+cuda:0' is not a list of different CUDA devices"),
        (2, "cuda:0+cpu", r"'cuda:0\+cpu' is not a list of different CUDA devices"),
        (2, "cuda:0+", r"'cuda:0\+' is not a list of different CUDA devices"),
        (2, "cuda:0,cuda:1", "unknown device 'cuda:0,cuda:1'"),
        (2, "", "unknown device ''"),
    ],
)
def test_a_device_that_cannot_be_had_is_one_sentence(cards, count, device, sentence):
    cards(count)
    with pytest.raises(UserError, match=sentence) as error:
        places(device, 1)
    assert "\n" not in str(error.value)


@given(st.text(alphabet="cudapb:0129+ \n", max_size=14) | st.text(max_size=20))
def test_whatever_is_written_is_understood_or_refused(text):
    try:
        name = DeviceName.parse(text)
    except UserError:
        return
    assert text in ("auto", "balanced", "sequential", "cpu", "mps") or name.devices
    assert (name.strategy is not None) == ("+" in text or text in ("balanced", "sequential"))


def test_what_runs_a_model_is_told_of_every_name():
    names = ("auto", "cpu", "cuda:1", "cuda:0+cuda:1", "balanced", "sequential")
    kinds = ["auto", "cpu", "cuda", "cuda", "cuda", "cuda"]
    assert [DeviceName.parse(name).kind for name in names] == kinds


def test_how_many_gpus_there_must_be_is_told_of_every_name():
    names = ("auto", "cpu", "cuda", "cuda:1", "xpu:3", "cuda:1+cuda:3", "balanced", "sequential")
    assert [DeviceName.parse(name).gpus for name in names] == [0, 0, 1, 2, 0, 4, 2, 2]


def test_further_checkpoints_go_to_the_first_device_of_a_spread_model(cards):
    cards(2)
    spec = ModelSpec(path="model", device="balanced")
    assert Place.of(spec) == Place(CARDS[0], torch.bfloat16)


def test_dtypes():
    assert dtype_of("auto", CPU) == torch.float32
    assert dtype_of("float16", CPU) == torch.float16
    assert dtype_of("auto", torch.device("cuda")) == torch.bfloat16
    with pytest.raises(UserError, match="unknown dtype 'float8'"):
        ModelSpec(path="model", dtype="float8")
