"""What the doctor says of models, healthy ones and such as would go wrong."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, normalizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models.doctor import SPANS, DeviceLoad, Load, examination, odd_spans, wrong_with
from adafuse.models.spec import model_specs
from adafuse.tokenization.text import SPECIAL
from tests.conftest import loaded, toy_path
from tests.support.thinking import ANALYSIS, CHANNELS, FINAL, OFF, OPENED, SWITCHED, with_template


def examined(*paths, batch=None, **loading):
    specs = model_specs(paths, **{"device": "cpu", **loading})
    return examination(specs, batch or Load(8, 512, 256))


def said(report, *, problem=True):
    return [each.sentence for each in report.findings if each.problem == problem]


@pytest.fixture
def copied(tmp_path):
    """A copy of a toy model, to be spoiled."""
    folder = tmp_path / "model"
    shutil.copytree(toy_path("llama"), folder)
    return folder


def change(folder, name, **values):
    path = Path(folder, name)
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.fixture(scope="module")
def toys():
    return examined(toy_path("mistral"), toy_path("llama"))


def test_toy_models_are_healthy(toys):
    assert toys.healthy
    assert said(toys) == []


def test_what_is_said_of_a_model_is_what_loading_it_finds(toys):
    loaded = Ensemble.from_pretrained([facts.name for facts in toys.models], device="cpu").models
    for facts, model in zip(toys.models, loaded, strict=True):
        ends = model.tokenizer.convert_ids_to_tokens(list(model.end_ids))
        assert [*facts.ends, *facts.other_ends] == ends
        assert list(facts.ends.values()) == [s for s in model.end_ids.values() if s != SPECIAL]
        assert facts.context == model.context
        assert facts.vocabulary == model.vocabulary
        weights = {p.data_ptr(): p.nbytes for p in model.network.parameters()}
        assert facts.weights == sum(weights.values())
        prompt = model.prompt_ids("a")
        assert facts.start == model.tokenizer.convert_ids_to_tokens(prompt[0])


@pytest.mark.parametrize(
    ("template", "settings", "thinks", "switch"),
    [
        (SWITCHED, {}, True, "enable_thinking"),
        (SWITCHED, {"chat_template_kwargs": OFF}, False, "enable_thinking"),
        (OPENED, {}, True, "enable_thinking"),
        (CHANNELS, {}, True, None),
        ("{{ messages[0].content.split('</think>')[-1] }}", {}, None, None),
    ],
)
def test_whether_a_model_thinks_is_said(tmp_path, template, settings, thinks, switch):
    (facts,) = examined(with_template("llama", tmp_path / "llama", template), **settings).models
    assert (facts.thoughts.thinks, facts.thoughts.switch) == (thinks, switch)
    assert (facts.thoughts.begin, facts.thoughts.end) == (
        (ANALYSIS, FINAL) if template == CHANNELS else ("<think>", "</think>")
    )


@pytest.mark.parametrize("chat", [False, "auto"])
def test_models_that_cannot_think_together_are_named_with_the_fix(tmp_path, toys, chat):
    assert [facts.thoughts for facts in toys.models] == [None, None]
    path = with_template("qwen3", tmp_path / "qwen3", SWITCHED)
    report = examined(path, toy_path("llama"), chat=chat)
    (sentence,) = said(report, problem=bool(chat))
    where = "" if chat else "in conversations, "
    assert sentence.startswith(f"{where}{path} thinks before it answers and ")
    assert sentence.endswith(f"set chat_template_kwargs to {{enable_thinking: false}} for {path}")
    off = examined(path, toy_path("llama"), chat=chat, chat_template_kwargs=[OFF, None])
    assert said(off) == said(off, problem=False) == []


def test_memory_is_what_the_automatic_batch_size_counts_with(toys):
    from adafuse.models.language_model import demands

    loaded = Ensemble.from_pretrained([facts.name for facts in toys.models], device="cpu").models
    needs = [size for model in loaded for _, size in demands(model, 512 + 256)]
    (load,) = toys.loads
    assert load.per_row == sum(needs)
    assert load.weights == sum(facts.weights for facts in toys.models)


def test_vocabularies_are_compared_by_bytes(toys):
    (overlap,) = toys.overlaps
    assert overlap.shared > 0
    same = examined(toy_path("llama"), toy_path("mistral")).overlaps[0]
    assert same.percent == overlap.percent[::-1]


def test_a_model_that_is_not_there_is_a_problem_and_the_others_are_looked_at():
    report = examined("/nowhere", toy_path("llama"))
    assert not report.healthy
    assert "model '/nowhere' is not a folder" in said(report)[0]
    assert [facts.name for facts in report.models] == [toy_path("llama")]


def test_a_model_that_does_not_continue_texts_is_a_problem():
    assert (
        "is not a causal language model (deberta-v2)" in said(examined(toy_path("pair_ranker")))[0]
    )


def test_settings_that_cannot_be_had_are_a_problem_and_models_are_looked_at_all_the_same():
    report = examined(toy_path("llama"), device="cuda:98")
    assert "no device 'cuda:98': " in said(report)[0]
    assert len(report.models) == 1
    assert report.loads == ()


@pytest.mark.parametrize(
    ("file", "values", "sentence"),
    [
        ("config.json", {"vocab_size": 700}, r"has weights of other shapes than its config names"),
        (
            "config.json",
            {"num_hidden_layers": 9},
            r"has no weights model.layers.4.\S+ that its conf",
        ),
        ("config.json", {"num_hidden_layers": 3}, r"of a layer after the last of its config"),
        ("config.json", {"max_position_embeddings": 1100}, r"more than the 1100 positions"),
        ("config.json", {"is_encoder_decoder": True}, r"is an encoder-decoder"),
        (
            "model.safetensors.index.json",
            {"weight_map": {"a": "model-1.safetensors", "b": "model.safetensors"}},
            r"lacks the file 'model-1.safetensors' of its weights; download it again",
        ),
    ],
)
def test_what_would_go_wrong_is_one_sentence_with_the_fix(copied, file, values, sentence):
    if not (copied / file).exists():
        (copied / file).write_text("{}")
    change(copied, file, **values)
    report = examined(str(copied), batch=Load(8, 512, 600))
    assert not report.healthy
    (problem,) = said(report)
    assert re.search(sentence, problem)
    assert "\n" not in problem


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 1}'])
def test_an_index_that_cannot_be_read_is_not_called_missing(copied, text):
    (copied / "model.safetensors.index.json").write_text(text)
    (problem,) = said(examined(str(copied)))
    assert "'model.safetensors.index.json' of model" in problem
    assert "does not say which files hold its weights; download it again" in problem


@pytest.mark.parametrize("size", [0, 7, 20_000, -1])
def test_weights_that_are_cut_off_are_a_problem(copied, size):
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:size])
    told = f"the file 'model.safetensors' of model '{copied}' is cut off or no safetensors file"
    with pytest.raises(UserError, match=re.escape(told)):
        Ensemble.from_pretrained([toy_path("mistral"), str(copied)], device="cpu")
    assert said(examined(str(copied))) == [f"{told}; download it again"]


@pytest.mark.parametrize("text", ["", "{", '{"model": 1}', '{"version": "1.0"}'])
def test_a_tokenizer_that_cannot_be_read_is_a_problem(copied, text):
    (copied / "tokenizer.json").write_text(text)
    told = rf"the tokenizer.json of model '{copied}' cannot be read \(.+\); download it again"
    with pytest.raises(UserError, match=told):
        Ensemble.from_pretrained([str(copied)], device="cpu")
    (problem,) = said(examined(str(copied)))
    assert re.fullmatch(told, problem)


def test_an_end_token_that_is_an_ordinary_one_is_a_warning(copied):
    tokenizer = AutoTokenizer.from_pretrained(str(copied))
    word = tokenizer.encode("a", add_special_tokens=False)[-1]
    change(copied, "generation_config.json", eos_token_id=[tokenizer.eos_token_id, word])
    report = examined(str(copied))
    (told,) = said(report, problem=False)
    token = tokenizer.convert_ids_to_tokens(word)
    assert f"ends its texts at {token!r}, an ordinary token; correct eos_token_id" in told
    assert report.healthy


def test_a_model_of_few_positions_is_small_and_no_problem(copied):
    change(copied, "config.json", max_position_embeddings=512)
    report = examined(str(copied))
    (told,) = said(report, problem=False)
    assert "new ones are more than the 512 positions of model" in told
    assert told.endswith("which is small; prompts may be too long for it")
    assert report.healthy


def test_no_end_token_is_a_problem(copied):
    (copied / "chat_template.jinja").unlink()
    change(copied, "generation_config.json", eos_token_id=None)
    change(copied, "config.json", eos_token_id=None)
    change(copied, "tokenizer_config.json", eos_token=None)
    assert "has no end token" in said(examined(str(copied)))[0]


def test_a_chat_that_a_model_has_no_template_for_is_a_problem(copied):
    (copied / "chat_template.jinja").unlink()
    assert examined(str(copied)).healthy
    assert "has no chat template" in said(examined(str(copied), chat=True))[0]


def test_too_little_memory_says_how_many_examples_fit(monkeypatch):
    batch = Load(8, 512, 256)
    (load,) = examined(toy_path("llama"), batch=batch).loads
    monkeypatch.setattr(
        "adafuse.models.doctor.free_memory", lambda _: load.weights + 4 * load.per_row
    )
    report = examined(toy_path("llama"), batch=batch)
    assert "; use --batch-size 3, or other or more devices" in said(report)[0]
    assert examined(toy_path("llama"), batch=Load(None, 512, 256)).healthy
    assert examined(toy_path("llama"), batch=Load(3, 512, 256)).healthy
    monkeypatch.setattr("adafuse.models.doctor.free_memory", lambda _: load.weights - 1)
    assert "the weights of" in said(examined(toy_path("llama")))[0]


def test_what_is_too_large_is_told_of_the_models_that_are_on_that_very_device(toys):
    first, second = toys.models
    first, second = replace(first, device="cuda:1"), replace(second, device="cuda:10")
    load = DeviceLoad("cuda:1", free=1, weights=2, per_row=1, rows=1, fits=0)
    (other,) = wrong_with([load], [first, second])
    assert f"the weights of {first.name} take" in other.sentence


def test_a_model_that_is_given_twice_is_told_for_each_place(monkeypatch):
    monkeypatch.setattr("adafuse.models.doctor.free_memory", lambda _: 1)
    llama = toy_path("llama")
    assert f"the weights of {llama} and {llama} take" in said(examined(llama, llama))[0]


def test_a_tokenizer_that_changes_words_is_warned_of():
    backend = Tokenizer.from_file(toy_path("llama") + "/tokenizer.json")
    backend.normalizer = normalizers.Lowercase()
    folded = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert odd_spans(folded, "x") == [" Straße"]
    words = {"[UNK]": 0, "Answer": 1, "word": 2}
    plain = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    assert len(odd_spans(PreTrainedTokenizerFast(tokenizer_object=plain), "x")) > len(SPANS) // 2


def test_real_tokenizers_give_back_every_span(real_tokenizer):
    tokenizer = loaded(real_tokenizer)
    assert odd_spans(tokenizer, real_tokenizer.name) == []


def test_what_runs_on_the_reference_engine_is_said(copied):
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 300}
    change(copied, "config.json", rope_parameters=rope | factors, window_size=64)
    own, long = said(examined(str(copied), batch=Load(8, 200, 101)), problem=False)
    assert "limits of its own (window_size 64)" in own
    assert "texts of more than 300 tokens" in long
    change(copied, "config.json", window_size=None)
    assert said(examined(str(copied), batch=Load(8, 200, 100)), problem=False) == []


def test_the_advice_on_a_start_token_that_is_not_put_before_a_text_helps(copied):
    before = json.loads((copied / "tokenizer.json").read_text())["post_processor"]
    change(copied, "tokenizer.json", post_processor=None)
    change(copied, "tokenizer_config.json", add_bos_token=True)
    report = examined(copied)
    assert report.models[0].start is None
    assert "add it to post_processor in its tokenizer.json" in said(report, problem=False)[0]
    (copied / "chat_template.jinja").write_text("<|begin_of_text|>{{ messages[0].content }}")
    assert said(examined(copied), problem=False) == [], "it begins turns"
    (copied / "chat_template.jinja").unlink()
    change(copied, "tokenizer.json", post_processor=before)
    change(copied, "tokenizer_config.json", add_bos_token=False)
    report = examined(copied)
    assert report.models[0].start == "<|begin_of_text|>"
    assert said(report, problem=False) == []


def test_a_tokenizer_with_far_fewer_tokens_than_the_network_has_rows_is_told(copied):
    change(copied, "config.json", vocab_size=2000)
    warned = said(examined(str(copied)), problem=False)
    assert any("has 1280 tokens, and its network 2000; if it is" in each for each in warned)
