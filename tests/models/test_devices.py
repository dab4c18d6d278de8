"""Where models go, on pretended machines."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adafuse.errors import UserError
from adafuse.models.placement import Place, Placement, dtype_of, placements
from adafuse.models.spec import DeviceName

CPU = Placement((torch.device("cpu"),))
CARDS = tuple(torch.device("cuda", index) for index in range(4))


@pytest.fixture
def cards(monkeypatch):
    """Pretend that so many CUDA devices are here."""
    return lambda count: monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def test_one_name_serves_all_models_and_a_list_names_one_each(cards):
    cards(2)
    assert placements("cpu", 3) == [CPU] * 3
    assert placements(["cpu", "cuda:1"], 2) == [CPU, Placement((CARDS[1],))]
    assert placements("cuda", 1) == [Placement((CARDS[0],))]
    with pytest.raises(UserError, match="2 devices for 3 models"):
        placements(["cpu", "cpu"], 3)


def test_auto_takes_the_cuda_devices_in_turn_or_the_cpu(cards):
    cards(0)
    assert placements("auto", 2) == [CPU, CPU]
    cards(2)
    assert [place.first.index for place in placements("auto", 3)] == [0, 1, 0]
    assert [place.first.index for place in placements(["auto", "auto"], 2)] == [0, 1]


def test_a_list_of_devices_spreads_one_model_over_these(cards):
    cards(4)
    assert placements("cuda:1+cuda:3", 1) == [Placement((CARDS[1], CARDS[3]), "balanced")]
    assert placements("cuda+cuda:1", 1) == [Placement(CARDS[:2], "balanced")]
    mixed = placements(["cuda:0", "cuda:1+cuda:2"], 2)
    assert [str(place) for place in mixed] == ["cuda:0", "cuda:1+cuda:2"]


@pytest.mark.parametrize("strategy", ["balanced", "sequential"])
def test_a_strategy_spreads_a_model_over_all_cuda_devices(cards, strategy):
    cards(4)
    assert placements(strategy, 2) == [Placement(CARDS, strategy)] * 2


@pytest.mark.parametrize(
    ("count", "device", "sentence"),
    [
        (0, "gpu", "unknown device 'gpu'; use auto, cpu, cuda:0, a list such as cuda:0.cuda:1"),
        (0, "cuda:99", r"device 'cuda:99' is not there \(0 CUDA devices found\); use auto"),
        (2, "cuda:0+cuda:2", r"device 'cuda:2' is not there \(2 CUDA devices found\)"),
        (0, "cuda:0+cuda:1", "device 'cuda:0' is not there"),
        (0, "balanced", "device 'balanced' spreads a model over CUDA devices, and none is here"),
        (2, "cuda:0+cuda:0", r"'cuda:0\+cuda:0' is no list of different CUDA devices"),
        (2, "cuda+cuda:0", r"'cuda\+cuda:0' is no list of different CUDA devices"),
        (2, "cuda:0+cpu", r"'cuda:0\+cpu' is no list of different CUDA devices"),
        (2, "cuda:0+", r"'cuda:0\+' is no list of different CUDA devices"),
        (2, "cuda:0,cuda:1", "unknown device 'cuda:0,cuda:1'"),
        (2, "", "unknown device ''"),
    ],
)
def test_a_device_that_cannot_be_had_is_one_sentence(cards, count, device, sentence):
    cards(count)
    with pytest.raises(UserError, match=sentence) as error:
        placements(device, 1)
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
    assert Place.named("balanced", "auto") == Place(CARDS[0], torch.bfloat16)


def test_dtypes():
    cpu = torch.device("cpu")
    assert dtype_of("auto", cpu) == torch.float32
    assert dtype_of("auto", torch.device("cuda")) == torch.bfloat16
    with pytest.raises(UserError, match="unknown dtype 'float8'"):
        dtype_of("float8", cpu)
