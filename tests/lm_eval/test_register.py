"""How the harness finds `--model adafuse`, today and by the entry point of its next releases."""

import tomllib
from importlib.metadata import EntryPoint

import pytest

from adafuse.errors import UserError
from adafuse.lm_eval import register as module
from adafuse.lm_eval.register import TARGET, register
from tests.lm_eval.tasks import ROOT


def test_the_entry_point_names_the_model():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["lm_eval.models"] == {"adafuse": TARGET}


def test_the_harness_takes_an_entry_point_for_a_model():
    pytest.importorskip("lm_eval", reason="needs adafuse[lm-eval]")
    from lm_eval.api.model import LM
    from lm_eval.api.registry import Registry

    models = Registry("model", base_cls=LM)
    models.register("adafuse", target=EntryPoint("adafuse", TARGET, "lm_eval.models"))
    assert models.get("adafuse").__name__ == "AdaFuseLM"


def test_adafuse_is_one_model_among_those_of_the_harness():
    pytest.importorskip("lm_eval", reason="needs adafuse[lm-eval]")
    from lm_eval.api.registry import get_model, model_registry

    register()
    register()  # a second time changes nothing
    assert get_model("adafuse").__name__ == "AdaFuseLM"
    assert {"hf", "vllm"} <= set(model_registry)


def test_a_missing_harness_is_one_sentence(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"is missing; run pip install '\.\[lm-eval\]' in"):
        register()
