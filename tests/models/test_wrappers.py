"""Networks that also read images write what their text part writes."""

import shutil
from itertools import takewhile
from pathlib import Path

import pytest
import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
)

from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models.doctor import Load, examination
from adafuse.models.language_model import load_config
from adafuse.models.placement import layer_devices
from adafuse.models.spec import ModelSpec, model_specs
from tests.conftest import toy_path
from tests.support.tiny import SMALL

CPU = torch.device("cpu")
TEXT = {
    **SMALL,
    "num_hidden_layers": 3,
    "head_dim": 4,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
EYES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "image_size": 16}
EYES |= {"num_attention_heads": 2, "patch_size": 8}
KINDS = {
    "mistral3": ({"model_type": "mistral"}, {"model_type": "pixtral"}),
    "llava": ({"model_type": "llama"}, {"model_type": "clip_vision_model"}),
    "idefics3": ({"model_type": "llama"}, {}),
    "gemma3": ({"sliding_window": 8}, {"model_type": "siglip_vision_model"}),
    "qwen2_5_vl": (
        {
            "rope_parameters": {
                "rope_type": "default",
                "mrope_section": [1, 1, 0],
                "rope_theta": 1e4,
            }
        },
        {"depth": 1, "num_heads": 2, "out_hidden_size": 16},
    ),
    "paligemma": ({"model_type": "gemma"}, {"model_type": "siglip_vision_model"}),
    "blip-2": ({"model_type": "opt", "ffn_dim": 32, "word_embed_proj_dim": 16}, {}),
}
PROMPTS = ["Question: Which city is the capital of Rustan?\nAnswer:", "Who?", "Name the festival"]


def written(kind, folder):
    """Write a tiny random network of a kind, with a toy tokenizer, and return it."""
    tokenizer = AutoTokenizer.from_pretrained(toy_path("llama"))
    text, eyes = KINDS[kind]
    config = type(AutoConfig.for_model(kind))(
        text_config={**TEXT, "vocab_size": len(tokenizer), **text}, vision_config={**EYES, **eyes}
    )
    torch.manual_seed(1)
    network = AutoModelForImageTextToText.from_config(config).eval()
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return network, tokenizer


def texts(ensemble, **settings):
    results = ensemble.generate(PROMPTS, max_new_tokens=12, **settings)
    assert [result.error for result in results] == [None] * len(PROMPTS)
    return [result.text for result in results]


@pytest.mark.parametrize("kind", ["mistral3", "llava", "idefics3", "gemma3"])
def test_a_network_that_also_reads_images_writes_what_its_text_part_writes(kind, tmp_path, caplog):
    network, tokenizer = written(kind, tmp_path)
    part = AutoModelForCausalLM.from_config(network.config.get_text_config()).eval()
    decoder = network.get_decoder()
    part.get_decoder().load_state_dict(decoder.state_dict())
    part.set_output_embeddings(network.get_output_embeddings())
    whole = Ensemble.from_pretrained([str(tmp_path)], device="cpu")
    assert len(layer_devices(whole.models[0].network, CPU)) == 3
    assert texts(whole) == texts(Ensemble([(part, tokenizer)]))
    assert texts(whole) == texts(whole, engine="reference", batch_size=1)
    both = [*whole.models, *Ensemble.from_pretrained([toy_path("qwen3")], device="cpu").models]
    assert texts(Ensemble(both))
    assert "reference engine" not in caplog.text


def test_a_network_whose_text_part_is_no_model_of_its_own_writes_what_it_generates(tmp_path):
    network, _ = written("qwen2_5_vl", tmp_path)
    ensemble = Ensemble.from_pretrained([str(tmp_path)], device="cpu")
    assert texts(ensemble) == texts(ensemble, engine="reference", batch_size=1)
    (model,) = ensemble.models
    for prompt, text in zip(PROMPTS, texts(ensemble, method="single"), strict=True):
        ids = torch.tensor([model.prompt_ids(prompt)])
        out = network.generate(ids, max_new_tokens=12, do_sample=False)[0].tolist()
        generated = takewhile(lambda index: index not in model.end_ids, out[ids.shape[1] :])
        assert text == model.anchor(ids[0].tolist()).added([*generated])


@pytest.mark.parametrize("kind", ["mistral3", "llava", "idefics3", "qwen2_5_vl"])
def test_the_doctor_accepts_it_and_says_what_loading_checks(kind, tmp_path):
    network, _ = written(kind, tmp_path)
    report = examination(model_specs([str(tmp_path)], device="cpu"), Load(8, 512, 256))
    (facts,) = report.models
    (loaded,) = Ensemble.from_pretrained([str(tmp_path)], device="cpu").models
    assert facts.architecture == network.config.model_type
    assert (facts.weights, facts.context) == (4 * network.num_parameters(), loaded.context)
    said = [finding.sentence for finding in report.findings if str(tmp_path) in finding.sentence]
    assert report.healthy and len(said) == 1
    assert "also reads images; whether it can write without them is checked when" in said[0]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("paligemma", r"\(paligemma\) reads a text in both directions; fused decoding needs"),
        ("blip-2", r"\(blip-2\) cannot write without images; give a model of text"),
    ],
)
def test_a_network_that_needs_images_or_is_not_causal_is_refused(kind, sentence, tmp_path):
    written(kind, tmp_path)
    with pytest.raises(UserError, match=sentence):
        Ensemble.from_pretrained([str(tmp_path)], device="cpu")


@pytest.mark.parametrize("kind", ["LlamaForSequenceClassification", "LlamaForTokenClassification"])
def test_a_classifier_is_no_language_model(kind: str, tmp_path: Path) -> None:
    folder = shutil.copytree(toy_path("llama"), tmp_path / "model")
    getattr(transformers, kind).from_pretrained(folder, num_labels=2).save_pretrained(folder)
    told = f"was saved as {kind}, which is no language model; name one that is"
    with pytest.raises(UserError, match=told):
        Ensemble.from_pretrained([folder], device="cpu")
    (finding,) = examination([ModelSpec(path=str(folder))], Load(1, 8, 8)).findings[:1]
    assert kind in finding.sentence


def test_a_network_that_was_saved_without_its_output_layer_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = shutil.copytree(toy_path("llama"), tmp_path / "model")
    transformers.LlamaModel.from_pretrained(folder).save_pretrained(folder)
    load_config(ModelSpec(path=str(folder)))
    assert "was saved as LlamaModel; if it makes embeddings or rewards, it cannot" in caplog.text
