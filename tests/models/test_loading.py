import json
import math
import shutil
from datetime import date

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    PreTrainedTokenizerFast,
)

from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models.language_model import load_models
from adafuse.models.spec import model_specs
from adafuse.records.result import Chat, as_prompt
from adafuse.tokenization.text import end_ids
from tests.conftest import toy_path
from tests.support.hub_cache import cached_model
from tests.support.thinking import OFF, SWITCHED, with_template
from tests.support.tiny import random_llama, random_model

PROMPTS = [
    f"Question: {question}\nAnswer:"
    for question in ("Name the festival of Thagate.", "Snastead trades in which goods?")
]


def load(*paths, **settings):
    """Load an ensemble on the CPU."""
    return Ensemble.from_pretrained(list(paths), device="cpu", **settings)


@pytest.fixture
def copy(tmp_path):
    """A copy of a toy model's folder that a test may break."""
    return shutil.copytree(toy_path("llama"), tmp_path / "llama")


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/nowhere/model", "model '/nowhere/model' is not a folder"),
        ("./nowhere", "model './nowhere' is not a folder"),
        ("a/b/c", "model 'a/b/c' is not a folder"),
        ("nobody/nothing", "model 'nobody/nothing', which is not a folder here, cannot be loaded"),
    ],
)
def test_a_missing_model_is_named(path, sentence):
    with pytest.raises(UserError, match=sentence):
        load(path)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("hidden_size", "x", "value that does not fit: Validation error for field 'hidden_size'"),
        ("num_attention_heads", 0, "value that does not fit: integer modulo by zero"),
        ("dtype", "float31", "value that does not fit: .*float31"),
        ("layer_types", ["x"], "value that does not fit: Class validation error"),
        ("hidden_act", "nope", "cannot be loaded: unknown name 'nope'"),
        ("auto_map", 4, "value that does not fit: argument of type 'int' is not iterable"),
        ("num_hidden_layers", 1, r"weights 'model\.layers\.1\..*' of a layer after the last"),
        ("num_hidden_layers", -1, r"weights 'model\.layers\.0\..*' of a layer after the last"),
    ],
)
def test_a_damaged_config_is_one_sentence(copy, field, value, sentence):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {field: value}))
    with pytest.raises(UserError, match=sentence) as error:
        load(copy)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("eos_token", ["</s>"], "tokenizer has a value that does not fit: Special token eos_token"),
        ("added_tokens_decoder", [1], "tokenizer has a value that does not fit: 'list' object has"),
    ],
)
def test_damaged_settings_of_a_tokenizer_are_one_sentence(copy, field, value, sentence):
    change(copy / "tokenizer_config.json", **{field: value})
    with pytest.raises(UserError, match=sentence):
        load(copy)


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{% for m in messages %}", r"template of model .* cannot be read \(Unexpected end of"),
        (
            [{"name": name, "template": "{{ messages[0].content }}"} for name in ("rag", "tools")],
            r"has several chat templates \(rag, tools\), and none is called default; call one so",
        ),
    ],
)
def test_a_chat_template_that_cannot_be_used_is_refused_before_any_prompt(copy, template, sentence):
    (copy / "chat_template.jinja").unlink()
    change(copy / "tokenizer_config.json", chat_template=template)
    for chat in (True, "auto"):
        with pytest.raises(UserError, match=sentence):
            load(copy, chat=chat)
    ensemble = load(copy)
    assert ensemble.generate(["Who?"], max_new_tokens=1)[0].error is None
    with pytest.raises(UserError, match=sentence):
        ensemble.generate([[{"role": "user", "content": "Who?"}]])
    with pytest.raises(UserError, match=sentence):
        load(copy, chat_template_kwargs={"thinks": False})


def test_a_longest_text_of_the_tokenizer_that_is_no_number_is_not_read(copy):
    change(copy / "tokenizer_config.json", model_max_length="x")
    assert load(copy).generate(["Who?"], max_new_tokens=1)[0].error is None


def test_a_folder_without_config_is_no_model(tmp_path):
    with pytest.raises(UserError, match=r"has no config.json"):
        load(str(tmp_path))


def test_a_model_without_tokenizer_is_refused_before_any_weights_are_read(copy):
    for path in copy.glob("*token*"):
        path.unlink()
    (copy / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"has no tokenizer; put its tokenizer.json"):
        load(str(copy))


def test_a_model_without_weights_is_refused(copy):
    (copy / "model.safetensors").unlink()
    with pytest.raises(UserError, match="cannot be loaded"):
        load(str(copy))


def test_a_tokenizer_with_more_tokens_than_the_network_has_rows_is_refused(copy, tmp_path, pair):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"vocab_size": 700}))
    sentence = (
        "has 1280 tokens, but its network only 700; give it the tokenizer that it was trained"
    )
    with pytest.raises(UserError, match=sentence):
        load(str(copy))
    network = random_llama(700, seed=0)
    with pytest.raises(UserError, match=sentence):
        Ensemble([(network, pair.models[1].tokenizer)])


@pytest.mark.parametrize(("rows", "told"), [(1280, 0), (1400, 0), (2000, 1)])
def test_a_tokenizer_with_far_fewer_tokens_may_be_that_of_another_model(rows, told, copy, caplog):
    random_llama(rows, seed=0).save_pretrained(copy)
    load(str(copy))
    assert caplog.text.count("if it is another model's, texts are wrong") == told


def test_special_tokens_may_have_no_row(copy):
    """As Gemma 3's image token has none, which its text models cannot read or write.

    Only the prompt that holds one fails, with a sentence. In what another model writes it is text.
    """
    tokenizer = AutoTokenizer.from_pretrained(copy)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    network = AutoModelForCausalLM.from_pretrained(copy)
    assert len(tokenizer) > network.config.vocab_size
    model = Ensemble([(network, tokenizer)])
    read, unread = model.generate(["Who", "Who is on the <image>"], max_new_tokens=4)
    assert read.error is None
    assert unread.error is not None
    assert "the text has the special token '<image>'" in unread.error
    ids = model.models[0].encode_span(" an <image>")
    assert tokenizer.decode(ids) == " an <image>"
    assert max(ids) < network.config.vocab_size


@pytest.mark.parametrize("method", ["single", "unite", "gac", "deepen", "bytewise"])
@pytest.mark.parametrize("place", [1280, 1500])
def test_special_tokens_without_a_row_change_no_text(copy, pair, method, place):
    content = json.loads((copy / "tokenizer.json").read_text())
    far = content["added_tokens"][0] | {"id": place, "content": "<image>"}
    change(copy / "tokenizer.json", added_tokens=[*content["added_tokens"], far])
    models = [load(str(copy)).models[0]]
    assert models[0].rows == 1280 == models[0].vocabulary == len(models[0].token_bytes.of)
    plain, settings = [pair.models[1]], {"method": method, "max_new_tokens": 8}
    if method != "single":
        models, plain = [*models, pair.models[0]], [*plain, pair.models[0]]
    asked = ["Question: Which city is the capital of Rustan?\nAnswer:"]
    (result,), (expected,) = (Ensemble(m).generate(asked, **settings) for m in (models, plain))
    assert result.error is None
    assert result.text == expected.text


def test_an_encoder_decoder_is_refused(copy):
    (copy / "config.json").write_text(json.dumps({"model_type": "t5"}))
    with pytest.raises(UserError, match="is an encoder-decoder"):
        load(str(copy))


def test_a_padding_token_that_the_network_has_no_row_for_is_refused(copy):
    """As of models to which one was added without a row; torch ends with an assertion."""
    change(copy / "config.json", pad_token_id=1280)
    with pytest.raises(UserError, match=r"has a pad_token_id .*; make it null there"):
        load(str(copy))


def test_a_model_that_names_no_end_is_refused(copy):
    (copy / "generation_config.json").unlink()
    (copy / "chat_template.jinja").unlink()
    settings = json.loads((copy / "config.json").read_text()) | {"eos_token_id": None}
    (copy / "config.json").write_text(json.dumps(settings))
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    settings.pop("eos_token", None)
    (copy / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match="has no end token"):
        load(str(copy))


def test_end_ids_come_from_generation_config_and_tokenizer_together(copy):
    settings = json.loads((copy / "generation_config.json").read_text())
    settings |= {"eos_token_id": [5], "_from_model_config": True}  # as transformers saves many
    (copy / "generation_config.json").write_text(json.dumps(settings))
    model = load(str(copy)).models[0]
    ends = list(model.end_ids.items())
    assert ends[:2] == [(5, "generation config"), (model.tokenizer.eos_token_id, "config")]
    assert model.end_ids[model.tokenizer.bos_token_id] == "special token"


@pytest.mark.parametrize("pad", ["!", "Ċ", "Ġthe"])
def test_a_word_that_was_chosen_for_padding_is_text_and_ends_none(copy, pad):
    known = load(str(copy)).models[0]
    change(copy / "tokenizer_config.json", pad_token=pad)
    model = load(str(copy)).models[0]
    assert model.tokenizer.pad_token_id == known.tokenizer.convert_tokens_to_ids(pad)
    assert model.end_ids == known.end_ids
    assert model.token_bytes.of == known.token_bytes.of


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"cannot be read \(Expecting value: .*\); download it again"),
        ('{"eos_token_id": [5', r"cannot be read \(Expecting ',' .*\); download it again"),
        ("\xe4", r"cannot be read \('utf-8' codec .*\); download it again"),
        ("[]", r"cannot be read \('list' object is not a mapping\); download it again"),
        ("[" * 100_000, r"cannot be read \(.*recursion.*\); download it again"),
        ('{"max_new_tokens": "9"}', r"cannot be read \('<=' not supported .*\); download it again"),
        ('{"eos_token_id": "5"}', "has eos_token_id '5'; write a number, or a list of numbers"),
        ('{"eos_token_id": [5.0]}', r"has eos_token_id \[5.0\]; write a number, or a list of num"),
        (None, r"cannot be read \(No such file or directory\); download it again"),
    ],
)
def test_a_generation_config_that_is_there_is_never_passed_over(copy, text, sentence):
    file = copy / "generation_config.json"
    file.unlink()
    if text is None:
        file.symlink_to("nowhere")
    else:
        file.write_text(text, encoding="latin-1")
    with pytest.raises(
        UserError, match=f"^the generation_config.json of model '{copy}' {sentence}"
    ):
        load(str(copy))


def test_a_torn_generation_config_of_the_hub_is_told_and_a_missing_one_is_not(
    copy, tmp_path, monkeypatch
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    snapshot = cached_model(tmp_path / "cache", "org/name", str(copy))
    (snapshot / "generation_config.json").write_text("{")
    with pytest.raises(UserError, match="of model 'org/name' cannot be read"):
        load("org/name")
    (snapshot / "generation_config.json").unlink()
    assert "generation config" not in load("org/name").models[0].end_ids.values()


def change(file, **changes):
    """Set keys of a JSON file; None removes one."""
    settings = json.loads(file.read_text()) | changes
    file.write_text(
        json.dumps({key: value for key, value in settings.items() if value is not None})
    )


def name_end(folder, token):
    """Make `token` the only end that the files of a model name."""
    index = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(token)
    change(folder / "generation_config.json", eos_token_id=index)
    change(folder / "config.json", eos_token_id=index)
    change(folder / "tokenizer_config.json", eos_token=token)


@pytest.mark.parametrize("engine", ["tree", "reference"])
def test_end_is_scored_by_the_ids_that_it_is_proposed_by(copy, engine):
    """The model ends with <|eot_id|>, which its files then no longer name."""
    whole, mistral = toy_path("llama"), toy_path("mistral")
    name_end(copy, "<|end_of_text|>")
    for method in ("adafuse", "sweetspan"):
        named, unnamed = (
            load(mistral, path).generate(PROMPTS, method=method, engine=engine, max_new_tokens=12)
            for path in (whole, str(copy))
        )
        assert [result.text for result in unnamed] == [result.text for result in named]
        before, after = (
            [c for result in results for own in result.rounds for c in own.candidates]
            for results in (named, unnamed)
        )
        assert any(candidate.ends for candidate in before)
        for one, other in zip(before, after, strict=True):
            assert other.nll == pytest.approx(one.nll, abs=1e-5)


def test_the_token_that_ends_a_turn_of_the_chat_template_is_an_end(copy):
    name_end(copy, "<|end_of_text|>")
    tokens = json.loads((copy / "tokenizer.json").read_text())["added_tokens"]
    change(copy / "tokenizer.json", added_tokens=[token | {"special": False} for token in tokens])
    model = load(str(copy)).models[0]
    assert model.end_ids[model.tokenizer.convert_tokens_to_ids("<|eot_id|>")] == "chat template"
    (copy / "chat_template.jinja").write_text("{{ raise_exception('no assistant') }}")
    assert "chat template" not in load(str(copy)).models[0].end_ids.values()


def test_an_ordinary_token_is_an_end_only_where_a_file_names_it():
    """The class of a config has a default, which stands for another token in most vocabularies."""
    words = Tokenizer(WordLevel({"a": 0, "b": 1, "c": 2, "<end>": 3}, "a"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>")
    default, written = LlamaConfig(), LlamaConfig(eos_token_id=[1, 3])
    assert default.eos_token_id == 2
    made = GenerationConfig.from_model_config(default)
    assert end_ids(default, made, tokenizer, "m") == {3: "tokenizer"}
    made.eos_token_id = [2, 0]  # in its file, or in Python
    own = {2: "generation config", 0: "generation config", 3: "tokenizer"}
    assert end_ids(default, made, tokenizer, "m") == own
    made = GenerationConfig.from_model_config(written)
    assert end_ids(written, made, tokenizer, "m") == {1: "config", 3: "config"}
    named = end_ids(default, GenerationConfig(eos_token_id=0), tokenizer, "m", gguf=[1])
    assert named == {0: "generation config", 3: "tokenizer", 1: "GGUF"}


def test_a_vocabulary_with_gaps_keeps_its_last_ids(copy):
    """Ids without a token take no probability, as rows of padding do."""
    end, last = "<|end_of_text|>", 1290
    file = copy / "tokenizer.json"
    tokens = json.loads(file.read_text())["added_tokens"]
    (gap,) = [token["id"] for token in tokens if token["content"] == end]
    moved = [token | {"id": last} if token["content"] == end else token for token in tokens]
    settings = json.loads(file.read_text())["model"]
    change(file, added_tokens=moved, model=settings | {"vocab": settings["vocab"] | {end: last}})
    random_llama(last + 6, seed=1).save_pretrained(copy)
    name_end(copy, end)
    model = load(str(copy)).models[0]
    assert last in model.end_ids and model.vocabulary == last + 1 == len(model.token_bytes.of)
    assert {gap, last - 1} <= set(model.unused_ids)
    context, text = model.prompt_ids("a b"), model.encode_span(" c")
    logits = model.network(torch.tensor([context])).logits[0, -1, : last + 1].detach()
    logits[list(model.unused_ids)] = -math.inf
    for engine in ("tree", "reference"):
        ((_, likelihood),) = Ensemble([model], [1.0]).loglikelihoods([("a b", " c")], engine=engine)
        expected = float(logits.log_softmax(dim=-1)[text[0]])
        assert likelihood.logprobs[0] == pytest.approx(expected, abs=1e-4)


def test_a_revision_of_a_folder_is_refused(copy):
    with pytest.raises(UserError, match=r"^revision 'main' is for hub models, but .* is here; rem"):
        load(str(copy), revisions=["main"])
    assert load(str(copy), revisions=[None]).models


def test_one_setting_per_model_is_demanded():
    two = [toy_path("llama"), toy_path("mistral")]
    with pytest.raises(UserError, match="revisions: 1 given for 2 models"):
        load(*two, revisions=["main"])
    with pytest.raises(UserError, match="quantization: 3 given for 2 models"):
        load(*two, quantization=[None, None, None])
    with pytest.raises(UserError, match="trust_remote_code: 1 given for 2 models"):
        load(*two, trust_remote_code=[True])
    with pytest.raises(UserError, match="1 weights for 2 models"):
        load(*two, weights=[1.0])
    with pytest.raises(UserError, match="no model was given"):
        load()
    with pytest.raises(UserError, match=r"unknown model setting 'devices'.*did you mean 'device'"):
        load(*two, devices="cpu")


def test_a_chat_template_is_used_where_there_is_one(tmp_path, caplog):
    without = random_model(toy_path("llama"), tmp_path / "model", seed=1)
    (tmp_path / "model/chat_template.jinja").unlink()
    models = Ensemble.from_pretrained(
        [toy_path("qwen3"), without], device="cpu", chat="auto"
    ).models
    assert [model.chat for model in models] == [True, False]
    assert f"{without} has no chat template and continues prompts as they stand" in caplog.text
    with pytest.raises(UserError, match="has no chat template"):
        Ensemble.from_pretrained([without], device="cpu", chat=True)


def test_a_byte_order_mark_of_a_chat_template_is_no_part_of_prompts(copy):
    """It would also hide the start token of the template, so that there were two."""
    prompt, file = Chat([{"role": "user", "content": "Who?"}]), copy / "chat_template.jinja"
    (before,) = (model.prompt_ids(prompt) for model in load(str(copy)).models)
    file.write_text(file.read_text(), encoding="utf-8-sig")
    assert [model.prompt_ids(prompt) for model in load(str(copy)).models] == [before]


def test_chat_templates_see_the_day_that_is_named_for_their_model(copy):
    change(
        copy / "tokenizer_config.json",
        chat_template="{{ strftime_now('%F') }}: {{ messages[0].content }}",
    )
    (copy / "chat_template.jinja").unlink(missing_ok=True)
    prompt = [{"role": "user", "content": "Who?"}]
    for days, seen in (({}, "2024-07-26"), ({"chat_date": "2026-01-31"}, "2026-01-31")):
        ensemble = load(str(copy), **days)
        (model,) = ensemble.models
        ids = model.prompt_ids(as_prompt(prompt, "it"))
        assert model.tokenizer.decode(ids, skip_special_tokens=True) == f"{seen}: Who?"
        results = ensemble.generate([prompt], max_new_tokens=1)
        assert results.settings["chat_date"] == [seen]


def test_chat_templates_read_the_variables_of_their_model(tmp_path):
    models = [with_template("qwen3", tmp_path / name, SWITCHED) for name in ("on", "off")]
    prompt = [{"role": "user", "content": "Who?"}]
    ensemble = load(*models, chat_template_kwargs=[None, OFF])
    on, off = (m.tokenizer.decode(m.prompt_ids(Chat(prompt))) for m in ensemble.models)
    assert off == on + "<think>\n\n</think>\n\n"
    results = ensemble.generate(["Who?"], max_new_tokens=1)
    assert results.settings["chat_template_kwargs"] == [None, OFF]
    assert "chat_template_kwargs" not in load(*models).generate(["Who?"]).settings
    given = Chat(prompt, chat_template_kwargs=OFF)
    assert {m.tokenizer.decode(m.prompt_ids(given)) for m in ensemble.models} == {off}


def test_variables_that_no_chat_template_reads_are_refused(tmp_path):
    model = with_template("qwen3", tmp_path / "switched", SWITCHED)
    for name in ("enable_thinkin", "messages", "eos_token"):
        known = r"known are: enable_thinking(; did you mean 'enable_thinking'\?)?$"
        with pytest.raises(UserError, match=f"unknown variable of the chat .* '{name}'; {known}"):
            load(model, chat_template_kwargs={name: False})
    ensemble = load(model, toy_path("llama"), chat_template_kwargs=[OFF, None])
    asked = [Chat([{"role": "user", "content": "Who?"}], chat_template_kwargs={"thinks": 1})]
    with pytest.raises(UserError, match="unknown variable of the models' chat templates 'thinks'"):
        ensemble.generate(asked)
    with pytest.raises(UserError, match="/llama' has no chat template that reads variables"):
        load(model, toy_path("llama"), chat_template_kwargs=OFF)
    without = random_model(toy_path("llama"), tmp_path / "model", seed=1)
    (tmp_path / "model/chat_template.jinja").unlink()
    with pytest.raises(UserError, match="change nothing; remove them for this model"):
        load(without, chat_template_kwargs=OFF)


@pytest.mark.parametrize("given", ["off", ["off"], {"x": date(2026, 1, 31)}, {1: 2}])
def test_variables_that_are_no_json_by_name_are_refused(given):
    with pytest.raises(UserError, match="chat_template_kwargs"):
        Chat([{"role": "user", "content": "Who?"}], chat_template_kwargs=given)
    with pytest.raises(UserError, match="chat_template_kwargs"):
        model_specs(["org/a"], chat_template_kwargs=given)


@pytest.mark.parametrize("day", ["tomorrow", "2026-13-01", ""])
def test_a_day_that_is_none_is_refused(day):
    with pytest.raises(UserError, match=r"chat_date .* is not a day; write one such as"):
        model_specs(["org/a"], chat_date=day)


def test_a_model_that_is_too_large_for_its_device_is_one_sentence(monkeypatch):
    def fail(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", fail)
    with pytest.raises(UserError, match=r"does not fit on cpu; spread it over several devices"):
        load(toy_path("llama"))


def test_models_with_a_device_of_their_own_are_loaded_before_spread_ones(monkeypatch):
    order = []

    def fake(spec, *_):
        order.append(spec.path)
        return spec.path

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("adafuse.models.language_model._load", fake)
    paths = [toy_path("llama"), toy_path("mistral"), toy_path("qwen3")]
    places = ["balanced", "cuda:1", "cuda:0"]
    models = load_models(model_specs(paths, device=places))
    assert order == [paths[1], paths[2], paths[0]]
    assert list(models) == paths
