"""A LoRA adapter is applied where it is named; elsewhere it is refused, and never ignored."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from adafuse import Ensemble, UserError
from adafuse.models.doctor import Load, examination
from adafuse.models.files import keys_now, model_key
from adafuse.models.hub import download
from adafuse.models.language_model import load_config, loaded
from adafuse.models.spec import ModelEntry, ModelSpec, model_specs
from adafuse.models.tokenizers import load_tokenizer
from tests.conftest import toy_path
from tests.support.hub_cache import cached_model
from tests.support.results import assert_same
from tests.support.tiny import random_model

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
    sentence = r"is a LoRA or other adapter \(.*\), not a model; name its base model, and this"
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


@pytest.fixture
def lora(tmp_path: Path) -> Callable[[str], str]:
    """Writes a LoRA with random weights over a toy model, and returns its folder."""
    peft = pytest.importorskip("peft")

    def write(name: str, **changes: Any) -> str:
        if (tmp_path / name).is_dir():
            return str(tmp_path / name)
        network = AutoModelForCausalLM.from_pretrained(toy_path("llama"))
        settings = {"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
        torch.manual_seed(len(name))
        made = peft.get_peft_model(network, peft.LoraConfig(**settings | changes))
        for parameter in made.parameters():
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.3)
        made.save_pretrained(tmp_path / name)
        return str(tmp_path / name)

    return write


def logits(network: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = network(input_ids=torch.tensor([[5, 6, 7, 8]])).logits
    return found


def base() -> Any:
    return AutoModelForCausalLM.from_pretrained(toy_path("llama"), dtype="float32").eval()


def test_a_model_with_an_adapter_is_the_network_that_peft_makes(lora: Callable[[str], str]) -> None:
    from peft import PeftModel

    folder = lora("one")
    ensemble = Ensemble.from_pretrained([toy_path("llama")], adapter=[folder], device="cpu")
    (model,) = loaded(ensemble.models, "the test")
    assert torch.equal(
        logits(model.network), logits(PeftModel.from_pretrained(base(), folder).eval())
    )
    assert not torch.allclose(logits(model.network), logits(base()), atol=0.1)
    assert model.name == f"{toy_path('llama')} + {folder}"


def test_adapters_over_one_base_share_its_weights_and_change_nothing_in_each_other(
    lora: Callable[[str], str],
) -> None:
    folders = [lora("one"), lora("other", use_dora=True), None]
    ensemble = Ensemble.from_pretrained([toy_path("llama")] * 3, adapter=folders, device="cpu")
    one, other, plain = (model.network for model in loaded(ensemble.models, "the test"))
    places = [network.get_input_embeddings().weight.data_ptr() for network in (one, other, plain)]
    assert places[0] == places[1] != places[2]
    for network, folder in zip((one, other), folders, strict=False):
        alone = Ensemble.from_pretrained([toy_path("llama")], adapter=[folder], device="cpu")
        assert torch.equal(logits(network), logits(loaded(alone.models, "it")[0].network))
    assert torch.equal(logits(plain), logits(base()))


@pytest.mark.parametrize("begins", ["pissa", "olora"])
def test_an_adapter_that_changes_the_base_changes_it_for_itself_alone(
    lora: Callable[[str], str], begins: str
) -> None:
    from peft import PeftModel

    folders = [lora("plain"), lora(begins, init_lora_weights=begins)]
    for order in (folders, folders[::-1]):
        both = Ensemble.from_pretrained([toy_path("llama")] * 2, adapter=order, device="cpu")
        for model, folder in zip(loaded(both.models, "the test"), order, strict=True):
            alone = PeftModel.from_pretrained(base(), folder).eval()
            assert torch.allclose(logits(model.network), logits(alone), atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [{"bias": "all"}, {"bias": "lora_only"}, {"target_modules": ["q_proj", "embed_tokens"]}],
)
def test_an_adapter_with_weights_of_its_base_changes_no_other_one(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    peft = pytest.importorskip("peft")
    path = random_model(toy_path("llama"), tmp_path / "base", seed=0, attention_bias=True)
    folders = []
    for name, own in (("plain", {}), ("other", changes)):
        network = AutoModelForCausalLM.from_pretrained(path)
        settings = {"target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"} | own
        made = peft.get_peft_model(network, peft.LoraConfig(**settings))
        for key, weights in made.named_parameters():
            if weights.requires_grad or (own and "base_layer" in key):
                torch.nn.init.normal_(weights, std=0.3)
        made.save_pretrained(folder := tmp_path / name)
        folders.append(str(folder))
    alone = [Ensemble.from_pretrained([path], adapter=[folder]).models for folder in folders]
    both = Ensemble.from_pretrained([path] * 2, adapter=folders)
    for model, (own,) in zip(loaded(both.models, "it"), alone, strict=True):
        assert torch.equal(logits(model.network), logits(loaded([own], "it")[0].network))


def test_it_is_decoded_with_as_the_reference_engine_does(lora: Callable[[str], str]) -> None:
    models = [toy_path("llama"), toy_path("mistral")]
    ensemble = Ensemble.from_pretrained(models, adapter=[lora("one"), None], device="cpu")
    settings: Any = {"max_new_tokens": 8, "branching": 2}
    prompts = ["Question: Who founded the town of Orrin?\nAnswer:", "a"]
    plain = ensemble.generate(prompts, engine="reference", **settings)
    assert_same(ensemble.generate(prompts, batch_size=2, **settings), plain)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"peft_type": "IA3"}, "is of kind IA3; only LoRA adapters can be used"),
        ({"task_type": "SEQ_CLS"}, "is for SEQ_CLS; fused decoding needs CAUSAL_LM"),
        ({"target_modules": ["no_proj"]}, r"does not fit model .*no_proj.*; name the model that"),
        ({"target_modules": ["q_proj"]}, r"does not fit model .*v_proj.* is in only one of them"),
        ({"r": 8}, "does not fit model .*size mismatch"),
        ({"alora_invocation_tokens": [5, 6]}, "is an activated LoRA .* name another adapter"),
    ],
)
def test_what_does_not_fit_is_refused(
    lora: Callable[[str], str], changes: dict[str, Any], sentence: str
) -> None:
    file = Path(lora("one"), "adapter_config.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(UserError, match=sentence):
        Ensemble.from_pretrained([toy_path("llama")], adapter=[file.parent], device="cpu")


def test_what_is_no_adapter_is_refused(lora: Callable[[str], str], tmp_path: Path) -> None:
    def refused(folder: str | Path, sentence: str) -> None:
        with pytest.raises(UserError, match=sentence):
            Ensemble.from_pretrained([toy_path("llama")], adapter=[folder], device="cpu")

    refused(tmp_path, r"has no adapter_config\.json; name the folder of a LoRA")
    (tmp_path / "adapter_config.json").write_text("{")
    refused(tmp_path, "is not JSON")
    (tmp_path / "adapter_config.json").write_text("[5]")
    refused(tmp_path, r"holds no settings, but \[5\]; save the adapter again")
    folder = Path(lora("one"))
    (folder / "adapter_model.safetensors").unlink()
    refused(folder, r"has no adapter_model\.safetensors")
    with pytest.raises(UserError, match="changes nothing in a model on a server; remove it here"):
        model_specs(["a"], adapter=["b"], server=["http://c"])
    with pytest.raises(
        UserError, match=r"'a \+ b' has ' \+ ', which joins a model and its adapter"
    ):
        model_specs(["a + b"])


def test_its_files_make_another_model(lora: Callable[[str], str]) -> None:
    folder = lora("one")
    name = ModelSpec(path=toy_path("llama"), adapter=folder).name
    before = model_key(name, None)
    assert before[:1] == model_key(toy_path("llama"), None) and len(before) == 2
    file = Path(folder, "adapter_config.json")
    file.write_text(file.read_text() + " ")
    assert keys_now([name]) != [before]


def test_one_that_was_made_for_another_model_is_said(
    lora: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    Ensemble.from_pretrained([toy_path("llama")], adapter=[lora("one")], device="cpu")
    assert "was made for" not in caplog.text
    Ensemble.from_pretrained(
        [shutil.copytree(toy_path("llama"), Path(lora("one")).parent / "copy")],
        adapter=[lora("one")],
        device="cpu",
    )
    assert "and is used with" in caplog.text


@pytest.mark.parametrize("file", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_chat_template_beside_it_that_is_not_its_models_is_said(
    lora: Callable[[str], str], caplog: pytest.LogCaptureFixture, file: str
) -> None:
    (spec,) = model_specs([toy_path("llama")], adapter=[lora("one")])
    own = Path(toy_path("llama"), "chat_template.jinja").read_text()
    for template in (own, "{{ messages[0].content }}"):
        text = template if file.endswith(".jinja") else json.dumps({"chat_template": template})
        Path(lora("one"), file).write_text(text)
        load_tokenizer(spec)
        assert ("has a chat template of its own, which is not used" in caplog.text) == (
            template != own
        )
