"""A limit inside a character of several tokens: what is incomplete is not part of the text."""

from functools import cache

import pytest
import torch
from transformers import AutoTokenizer

from adafuse.ensemble import Ensemble
from adafuse.tokenization.text import ModelTokenizer, whole_characters
from tests.conftest import REAL_TOKENIZERS, SHARED, ensemble_of, toy_path

WRITTEN = " ok 🙂漢🙂"
NAMES = ("mistral", "llama", "qwen3", "internlm3")


class Writer:
    """Makes a network write the ids of a text after a prompt, then END, whatever it is asked."""

    def __init__(self, model, prompt, text, end):
        self.ids = [*model.prompt_ids(prompt), *model.encode_span(text), end]
        self.start = len(model.prompt_ids(prompt))

    def __call__(self, module, args, kwargs, output):
        positions = kwargs["position_ids"]
        likely = torch.tensor(self.ids + self.ids[-1:] * 200)[positions + 1]
        output.logits = torch.full_like(output.logits, -9.0)
        output.logits.scatter_(2, likely[:, -output.logits.shape[1] :, None], 9.0)
        return output


@cache
def loaded(*names):
    """An ensemble whose engine was chosen while its networks still wrote what they like."""
    ensemble = ensemble_of(*map(toy_path, names))
    method = "single" if len(names) == 1 else "adafuse"
    ensemble.generate(["Say"], method=method, max_new_tokens=1)
    return ensemble


@pytest.fixture
def writer():
    """Ensembles that write a text, whose hooks go with the test."""
    hooks = []

    def make(names, text=WRITTEN, end=None):
        ensemble = loaded(*names)
        for model in ensemble.models:
            hook = Writer(model, "Say", text, min(model.end_ids) if end is None else end)
            hooks.append(model.network.register_forward_hook(hook, with_kwargs=True))
        return ensemble

    yield make
    for hook in hooks:
        hook.remove()


def whole(model, count):
    """What the first `count` tokens come to in whole characters."""
    ids = model.encode_span(WRITTEN)[:count]
    written = b"".join(model.token_bytes.of[index] for index in ids)
    return written.decode(errors="ignore")


@pytest.mark.parametrize("name", NAMES)
def test_single_and_its_stream_end_with_a_whole_character_at_any_limit(writer, name):
    ensemble = writer([name])
    (model,) = ensemble.models
    for limit in range(1, len(model.encode_span(WRITTEN)) + 1):
        chosen = {"method": "single", "max_new_tokens": limit}
        (result,) = ensemble.generate(["Say"], **chosen)
        assert (result.text, result.stop_reason) == (whole(model, limit), "length")
        assert "".join(ensemble.stream_text("Say", **chosen)) == result.text


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((name, {}) for name in ("adafuse", "fixed_length", "specfuse", "sweetspan", "gac")),
        *((name, {}) for name in ("unite", "bytewise", "rerank", "cool_fusion", "deepen")),
        ("cool_fusion", {"rerank": True}),
        ("cool_fusion", {"segments": "shortest"}),
    ],
)
def test_no_method_ends_inside_a_character(writer, method, options):
    """A span is finished beyond the limit, or left out."""
    ensemble = writer(["mistral", "qwen3"])
    for limit in (5, 9):
        chosen = {"method": method, "max_new_tokens": limit, **options}
        (result,) = ensemble.generate(["Say"], **chosen)
        assert result.error is None
        assert WRITTEN.startswith(result.text) and result.text
        assert "".join(ensemble.stream_text("Say", **chosen)) == result.text


@pytest.mark.parametrize("name", NAMES)
def test_an_end_inside_a_character_is_cut_as_well(writer, name):
    ensemble = writer([name])
    (model,) = ensemble.models
    written = model.encode_span(WRITTEN)[:6]
    ensemble.models[0].network._forward_hooks.popitem()
    hook = Writer(model, "Say", WRITTEN, min(model.end_ids))
    hook.ids[hook.start + len(written) :] = [min(model.end_ids)]
    handle = model.network.register_forward_hook(hook, with_kwargs=True)
    for method in ("single", "gac"):
        (result,) = Ensemble([model]).generate(["Say"], method=method)
        assert (result.text, result.stop_reason) == (whole(model, 6), "eos")
    handle.remove()


@pytest.mark.parametrize("name", NAMES)
def test_the_mark_itself_is_a_character(name):
    (model,) = Ensemble.from_pretrained([toy_path(name)], device="cpu").models
    prompt = model.prompt_ids("Say a")
    mark, begun = model.encode_span("\ufffd"), model.encode_span("🙂")[:-1]
    assert whole_characters(model, " a\ufffd", [*prompt, *mark]) == " a\ufffd"
    odd = model.anchor(prompt).added(begun)
    assert odd.endswith("\ufffd")
    assert whole_characters(model, f" a{odd}", [*prompt, *begun]) == " a"
    assert whole_characters(model, odd, [*prompt, *begun]) == ""
    assert whole_characters(model, " a", [*prompt, *begun]) == " a"


@pytest.mark.skipif(not SHARED.exists(), reason="needs real tokenizers")
@pytest.mark.parametrize("name", REAL_TOKENIZERS)
def test_texts_of_real_tokenizers_are_cut_at_characters(name):
    tokenizer = AutoTokenizer.from_pretrained(SHARED / "tokenizers" / name)
    model = ModelTokenizer(name=name, tokenizer=tokenizer, end_ids=frozenset([0]))
    prompt = tokenizer("Say it:")["input_ids"]
    for written in (" 🙂🙃 漢字🙂 é", "🙂 ✨🙂", "ok\u2028🫠 ½"):
        ids = model.encode_span(written)
        for count in range(len(ids) + 1):
            text = model.anchor(prompt).added(ids[:count])
            data = b"".join(model.token_bytes.of[index] for index in ids[:count])
            found = whole_characters(model, text, [*prompt, *ids[:count]])
            assert found == data.decode(errors="ignore"), written
