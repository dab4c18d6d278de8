import re
from pathlib import Path

import pytest
import torch

from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models.spec import ModelSpec, model_specs
from tests.conftest import toy_path


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "ModelSpec has no 'path'; add it"),
        ({"path": 3}, "model '3': path must be a valid string, not 3"),
        ({"path": "a", "dvice": "cpu"}, "model 'a': unknown key 'dvice'; known are: path, "),
        ({"path": "a", "server": "b"}, "model 'a': server: 'b' is not a URL; write one such as"),
    ],
)
def test_a_mistake_in_a_spec_is_one_sentence(given, sentence):
    with pytest.raises(UserError, match=re.escape(sentence)):
        ModelSpec(**given)
    assert ModelSpec(path=Path("a")).path == "a"


@pytest.mark.parametrize("name", ["server_model", "server_key"])
def test_settings_of_a_server_are_refused_without_one(name):
    with pytest.raises(UserError, match=f"{name} changes nothing without server; give the URL"):
        model_specs(["a"], **{name: ["X"]})
    assert model_specs(["a"], **{name: [None]})[0].server is None
    model_specs(["a", "b"], server=[None, "http://x"], **{name: [None, "X"]})


def test_a_spec_says_all_that_keywords_say():
    specs = [ModelSpec(path=toy_path("llama"), device="cpu", chat=True, dtype="bfloat16")]
    (model,) = Ensemble.from_pretrained(specs).models
    assert (model.name, model.chat) == (toy_path("llama"), True)
    assert model.network.dtype == torch.bfloat16
    assert specs == model_specs([toy_path("llama")], device="cpu", chat=[True], dtype="bfloat16")
    with pytest.raises(UserError, match="a ModelSpec has all settings of its model"):
        Ensemble.from_pretrained(specs, device="cpu")
    with pytest.raises(UserError, match="'x': trust_remote_code must be a valid boolean, not 'y'"):
        model_specs(["x"], trust_remote_code="y")
