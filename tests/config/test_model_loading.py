"""What a plan refuses of loading models."""

from pathlib import Path
from typing import Any

import pytest

from adafuse.config.reading import parse_config
from adafuse.errors import UserError


@pytest.mark.parametrize(
    ("device", "gpu", "sentence"),
    [
        ("gpu", 1, "models.left.device: unknown device 'gpu'; use auto, cpu, cuda:0"),
        (
            "cuda:0+cpu",
            2,
            "left.device: device 'cuda:0+cpu' is not a list of different CUDA devices",
        ),
        (
            "cuda:0+cuda:1",
            1,
            "needs at least 2 GPUs, counted from 0, but decode.gpu is 1; set it to as",
        ),
        ("cuda:0+cuda:1+cuda:2+cuda:3", 3, "at least 4 GPUs, counted from 0, but"),
        ("balanced", 1, "models.left: device 'balanced' needs at least 2 GPUs, but decode.gpu"),
        ("sequential", 0, "device 'sequential' needs at least 2 GPUs, but decode.gpu is 0"),
        ("cuda:1", 1, "device 'cuda:1' needs at least 2 GPUs, counted from 0, but decode.gpu is 1"),
        ("cuda:1+cuda:3", 2, "'cuda:1+cuda:3' needs at least 4 GPUs, counted from 0"),
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
    with pytest.raises(UserError, match=r"^decode: device 'balanced' needs"):
        parse_config(values)


def test_a_run_that_asks_for_gpus_of_its_own_is_checked_against_these(
    values: dict[str, Any],
) -> None:
    values["decode"]["gpu"] = 4
    values["models"]["right"]["device"] = "balanced"
    values["runs"]["both"]["cluster"] = {"gpu": 1}
    with pytest.raises(UserError, match=r"^models.right: .* but runs\.both\.cluster\.gpu is 1;"):
        parse_config(values)
    values["decode"]["gpu"] = 1
    values["runs"]["both"]["cluster"] = {"gpu": 4}
    assert parse_config(values).runs["both"].cluster.gpu == 4


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


URL = "http://node7:8000"


def served(values: dict[str, Any], *names: str) -> dict[str, Any]:
    for number, name in enumerate(names):
        values["models"][name]["server"] = URL + "0" * number
    return values


def test_models_that_are_one_on_a_server_are_refused(values: dict[str, Any]) -> None:
    for name in ("left", "right"):
        values["models"][name]["server"] = URL
    with pytest.raises(UserError, match=r"^models: '.*left' and '.*right' are both the model of"):
        parse_config(values)
    values["models"]["left"]["server_model"] = "l"
    with pytest.raises(UserError, match="are both the model of"):
        parse_config(values)
    values["models"]["right"]["server_model"] = "r"
    assert parse_config(values)


def test_a_model_on_a_server_needs_no_gpu(values: dict[str, Any]) -> None:
    values["decode"] |= {"device": "cuda:3", "gpu": 1}
    with pytest.raises(UserError, match="at least 4 GPUs"):
        parse_config(values)
    assert parse_config(served(values, "left", "right", "hub")).models["left"].server == URL
    values["runs"]["left"]["served"] = False
    with pytest.raises(UserError, match="at least 4 GPUs"):
        parse_config(values)
    del values["runs"]["left"]["served"]
    values["benchmarks"]["qa"]["served"] = False
    with pytest.raises(UserError, match="at least 4 GPUs"):
        parse_config(values)


def test_the_weights_of_a_model_on_a_server_need_not_be_here(
    values: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "left" / "model.safetensors").rename(tmp_path / "left" / "pytorch_model.bin")
    assert parse_config(served(values, "left")).models["left"].server == URL


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"server": "node7:8000"}, "left.server: 'node7:8000' is not a URL; write one such as"),
        ({"server": "http://me:secret@node7"}, "left.server: 'node7' is not a URL; write one"),
        ({"server": URL, "server_key": "sk-secret"}, "left.server_key: it is not the name of an"),
        ({"server": URL, "device": "cpu"}, "device 'cpu' changes nothing in a model on a server"),
        ({"server": URL, "quantization": "int8"}, "quantization 'int8' changes nothing in a model"),
        ({"server": URL, "allow_pickle": True}, "allow_pickle True changes nothing in a model on"),
        ({"server_model": "l"}, "left: server_model 'l' changes nothing in a model without server"),
        ({"server_key": "KEY"}, "server_key 'KEY' changes nothing in a model without server;"),
    ],
)
def test_settings_that_do_not_fit_a_server_are_one_sentence(
    values: dict[str, Any], changes: dict[str, Any], sentence: str
) -> None:
    values["models"]["left"] |= changes
    with pytest.raises(UserError) as error:
        parse_config(values)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value) and "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *(("unite", {}), ("gac", {}), ("deepen", {}), ("bytewise", {})),
        *(("gac", {"positions": "stable"}), ("specfuse", {"sampling": True})),
    ],
)
def test_a_method_that_reads_whole_distributions_is_refused_before_anything_is_asked(
    values: dict[str, Any], method: str, options: dict[str, Any]
) -> None:
    values["runs"]["both"] |= {"method": method, "options": options}
    with pytest.raises(UserError) as error:
        parse_config(served(values, "right"))
    expected = f"runs.both: method {method} reads whole distributions or weights, which the server"
    assert str(error.value).startswith(f"{expected} of right does not give;")
    assert str(error.value).endswith(", or set `served: false` for this run")
    values["runs"]["both"]["served"] = False
    assert not parse_config(values).runs["both"].served


def test_a_server_is_the_engine_of_its_models(values: dict[str, Any]) -> None:
    values["decode"]["engine"] = "reference"
    with pytest.raises(UserError, match=r"^runs.left: decode.engine is 'reference', but model le"):
        parse_config(served(values, "left"))


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (["x"], "models.left.chat_template_kwargs: chat_template_kwargs is ['x']; give values by"),
        ({"x": float("nan")}, "has a value that is not JSON"),
        ({"x": False}, "models.left: chat_template_kwargs {'x': False} change nothing without a"),
    ],
)
def test_variables_of_a_chat_template_that_cannot_work_are_one_sentence(
    values: dict[str, Any], variables: object, sentence: str
) -> None:
    values["models"]["left"]["chat_template_kwargs"] = variables
    with pytest.raises(UserError) as error:
        parse_config(values)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
