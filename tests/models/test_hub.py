"""What a model may bring along: code of its own, and weights that can hold code."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models.hub import from_hub
from adafuse.models.spec import ModelEntry
from tests.conftest import toy_path

CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM

Path(MARK).touch()

class OwnConfig(LlamaConfig):
    model_type = "own_llama"

class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


def load(*paths, **settings):
    return Ensemble.from_pretrained(list(map(str, paths)), device="cpu", **settings)


@pytest.fixture
def coded(tmp_path, monkeypatch):
    """A toy model of an unknown type, with code that leaves a mark when it runs."""
    for place in ("dynamic_module_utils", "utils.hub"):
        monkeypatch.setattr(
            f"transformers.{place}.HF_MODULES_CACHE", str(tmp_path / "cache"), raising=False
        )
    folder = shutil.copytree(toy_path("llama"), tmp_path / "own")
    code = CODE.replace("MARK", repr(str(tmp_path / "mark")))
    (folder / "own_code.py").write_text(code)
    config = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "own_code.OwnConfig", "AutoModelForCausalLM": "own_code.OwnModel"}
    config |= {"model_type": "own_llama", "architectures": ["OwnModel"], "auto_map": names}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def pickled(tmp_path):
    """A toy model whose weights are pickled."""
    folder = shutil.copytree(toy_path("llama"), tmp_path / "pickled")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def test_code_of_a_model_does_not_run_unless_it_is_trusted(coded):
    with pytest.raises(UserError, match=r"needs code of its own.*trust_remote_code for this model"):
        load(coded)
    assert not (coded.parent / "mark").exists()


def test_code_that_is_trusted_runs_for_its_model_only(coded, pair):
    ensemble = load(coded, toy_path("mistral"), trust_remote_code=[True, False])
    assert type(ensemble.models[0].network).__name__ == "OwnModel"
    assert (coded.parent / "mark").exists()
    (own,) = Ensemble((ensemble.models[0],), (1.0,)).generate(["a b"], max_new_tokens=8)
    (known,) = Ensemble((pair.models[1],), (1.0,)).generate(["a b"], max_new_tokens=8)
    assert own.text == known.text
    with pytest.raises(UserError, match="trust_remote_code for this model"):
        load(coded, toy_path("mistral"), trust_remote_code=[False, True])


def test_pickled_weights_are_refused_before_any_are_read(pickled):
    (pickled / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"has no safetensors weights.*set allow_pickle for this"):
        load(toy_path("mistral"), pickled)


def test_pickled_weights_that_are_allowed_are_the_same_weights(pickled, pair):
    network = load(pickled, allow_pickle=True).models[0].network
    known = pair.models[1].network.state_dict()
    assert all(torch.equal(value, known[name]) for name, value in network.state_dict().items())


def test_safetensors_go_before_pickled_weights(pickled):
    shutil.copy(toy_path("llama") + "/model.safetensors", pickled)
    (pickled / "pytorch_model.bin").write_bytes(b"no weights")
    assert load(pickled, allow_pickle=True).models


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError("org/x cannot be loaded with `safetensors`. Do not set `use_safetensors=True`"),
            "model 'org/x' has no safetensors weights, .* set allow_pickle for this model",
        ),
        (
            ValueError("custom code\nPlease pass `trust_remote_code=True`"),
            "model 'org/x' needs code of its own .* set trust_remote_code for this model",
        ),
        (OSError("not found\nsee docs"), "'org/x', which is not a folder here, .*: not found$"),
    ],
)
def test_what_the_hub_lacks_is_one_sentence(error, sentence):
    class Factory:
        @staticmethod
        def from_pretrained(*_, **__):
            raise error

    with pytest.raises(UserError, match=sentence) as raised:
        from_hub(Factory, ModelEntry(path="org/x"))
    assert "\n" not in str(raised.value)
