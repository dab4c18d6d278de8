"""An adapter, such as a LoRA, is never ignored: it is no model, and refused beside weights."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from adafuse import Ensemble, UserError
from adafuse.models.doctor import Load, examination
from adafuse.models.hub import download
from adafuse.models.language_model import load_config
from adafuse.models.spec import ModelEntry, ModelSpec
from tests.conftest import toy_path
from tests.support.hub_cache import cached_model

CONFIG = {"peft_type": "LORA", "base_model_name_or_path": "org/base", "r": 8}
KINDS = [
    ("adapter_config.json", "adapter_model.safetensors"),
    ("adapter_config.json", "adapter_model.bin"),
    ("adapter_model.safetensors",),
    ("my_lora.safetensors",),
]


def put(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        if name.endswith(".json"):
            (folder / name).write_text(json.dumps(CONFIG))
        else:
            save_file({"base_model.model.q_proj.lora_A.weight": torch.ones(2, 2)}, folder / name)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(toy_path("llama"), tmp_path / "model"))


@pytest.mark.parametrize("names", KINDS)
def test_an_adapter_alone_is_called_one(tmp_path: Path, names: tuple[str, ...]) -> None:
    put(tmp_path, names)
    sentence = r"is a LoRA or other adapter \(.*\), not a model; merge it into its base model"
    with pytest.raises(UserError, match=sentence):
        Ensemble.from_pretrained([tmp_path], device="cpu")
    for file in Path(toy_path("llama")).iterdir():  # with the files of its tokenizer and config
        if file.suffix != ".safetensors":
            shutil.copy(file, tmp_path)
    with pytest.raises(UserError, match=sentence):
        Ensemble.from_pretrained([tmp_path], device="cpu")


@pytest.mark.parametrize("names", KINDS)
def test_an_adapter_beside_weights_is_refused(model: Path, names: tuple[str, ...]) -> None:
    put(model, names)
    sentence = r"a LoRA or other adapter \(.*\) beside its weights, which would not be applied"
    with pytest.raises(UserError, match=sentence):
        Ensemble.from_pretrained([model], device="cpu")
    report = examination([ModelSpec(path=str(model), device="cpu")], Load(1, 8, 8))
    assert not report.healthy
    assert any("beside its weights" in finding.sentence for finding in report.findings)


@pytest.mark.parametrize("alone", [False, True])
def test_an_adapter_on_the_hub_is_refused_before_and_after_it_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Path, alone: bool
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    put(model, KINDS[0])
    if alone:
        (model / "model.safetensors").unlink()
    cached_model(tmp_path / "hub", "org/tuned", str(model))
    sentence = "a LoRA or other adapter"
    with pytest.raises(UserError, match=f"'org/tuned' .*{sentence}"):
        load_config(ModelSpec(path="org/tuned"))
    with pytest.raises(UserError, match=f"'org/tuned' .*{sentence}"):
        download(ModelEntry(path="org/tuned"))


def test_weights_of_an_adapter_among_the_others_are_refused(model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.lora_A.default.weight"
    weights[name] = torch.ones(2, 2)
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=f"has weights of a LoRA \\({name}\\)"):
        Ensemble.from_pretrained([model], device="cpu")


def test_adapters_in_folders_of_checkpoints_do_not_count(model: Path) -> None:
    (model / "checkpoint-10").mkdir()
    put(model / "checkpoint-10", KINDS[0])
    Ensemble.from_pretrained([model], device="cpu")
