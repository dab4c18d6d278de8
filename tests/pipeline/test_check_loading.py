"""What a plan refuses of loading models."""

from pathlib import Path
from typing import Any

import pytest

from adafuse.errors import UserError
from adafuse.pipeline.parse import parse_config


@pytest.mark.parametrize(
    ("device", "gpu", "sentence"),
    [
        ("gpu", 1, "models.left: unknown device 'gpu'; use auto, cpu, cuda:0"),
        ("cuda:0+cpu", 2, "models.left: device 'cuda:0+cpu' is no list of different CUDA devices"),
        ("cuda:0+cuda:1", 1, "spreads the model over 2 GPUs, but decode.gpu is 1; set it to as"),
        ("cuda:0+cuda:1+cuda:2+cuda:3", 3, "over 4 GPUs, but decode.gpu is 3"),
        ("balanced", 1, "models.left: device 'balanced' spreads the model over at least 2 GPUs"),
        ("sequential", 0, "over at least 2 GPUs, but decode.gpu is 0"),
    ],
)
def test_a_device_that_cannot_work_is_one_sentence(
    values: dict[str, Any], device: str, gpu: int, sentence: str
) -> None:
    values["models"]["left"]["device"] = device
    values["decode"]["gpu"] = gpu
    with pytest.raises(UserError) as error:
        parse_config(values)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_the_section_that_names_the_device_is_named(values: dict[str, Any]) -> None:
    values["decode"] |= {"device": "balanced", "gpu": 1}
    with pytest.raises(UserError, match=r"^decode: device 'balanced' spreads"):
        parse_config(values)


@pytest.mark.parametrize(
    ("device", "gpu"), [("cuda:0+cuda:1", 2), ("balanced", 4), ("auto", 1), ("cuda:1", 0)]
)
def test_a_device_that_can_work_is_taken(values: dict[str, Any], device: str, gpu: int) -> None:
    values["decode"] |= {"device": device, "gpu": gpu}
    assert parse_config(values).decode.device == device


def test_pickled_weights_must_be_allowed(values: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "left" / "model.safetensors").rename(tmp_path / "left" / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"^models.left: .* set allow_pickle for this model"):
        parse_config(values)
    values["models"]["left"]["allow_pickle"] = True
    assert parse_config(values).models["left"].allow_pickle


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("quantization", "int3", "models.left.quantization must be 'int8' or 'int4', not 'int3'"),
        ("trust_remote_code", "yes", "models.left.trust_remote_code must be a valid boolean"),
    ],
)
def test_values_that_are_no_settings_are_one_sentence(
    values: dict[str, Any], key: str, value: object, sentence: str
) -> None:
    values["models"]["left"][key] = value
    with pytest.raises(UserError) as error:
        parse_config(values)
    assert sentence in str(error.value)
