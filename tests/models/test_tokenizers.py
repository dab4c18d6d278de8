"""A tokenizer is what its tokenizer.json says, whatever class its settings name."""

import json
import shutil
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import Tokenizer
from transformers import AutoTokenizer, tokenization_utils_base

from adafuse.errors import UserError
from adafuse.models.spec import ModelSpec
from adafuse.models.tokenizers import load_tokenizer
from adafuse.tokenization.token_bytes import TokenBytes, id_count
from tests.conftest import toy_path

TELLING = (
    "Hello world",
    "In 1984, 12345678 DON'T don't we'LL",
    "a  b   c\t\td \n\n\n e\r\n",
    " leading and trailing ",
    "Straße, cafe\u0301, ﬁ, Ｆｕｌｌ, 漢字カナ, العربية, 🙂👍🏽",
    "def f(x):\n    return x**2  # ...!?",
    "x_y-z/http://a.b?c=d&e=f",
)
CLASSES = (
    "Qwen2Tokenizer",
    "LlamaTokenizer",
    "GPT2Tokenizer",
    "GPT2TokenizerFast",
    "GemmaTokenizer",
    "CodeLlamaTokenizer",
    "T5Tokenizer",
    "CohereTokenizer",
    "GPTNeoXTokenizer",
    "BertTokenizer",
    "RobertaTokenizer",
    "WhisperTokenizer",
    "PreTrainedTokenizerFast",
)


@pytest.fixture
def folder(tmp_path):
    """Copies the settings and the tokenizer of a toy model, which a test then changes."""

    def make(name: str) -> Path:
        for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(Path(toy_path(name)) / file, tmp_path / file)
        return tmp_path

    return make


def change(file: Path, **changes: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def loaded(folder: Path):
    return load_tokenizer(ModelSpec(path=str(folder)))


@pytest.mark.parametrize("name", ["mistral", "llama", "qwen3", "internlm3"])
def test_no_class_changes_what_the_file_says(folder, name):
    path = folder(name)
    file = Tokenizer.from_file(str(path / "tokenizer.json"))
    for kind in CLASSES:
        change(path / "tokenizer_config.json", tokenizer_class=kind)
        tokenizer = loaded(path)
        for text in TELLING:
            ids = file.encode(text).ids
            assert tokenizer(text)["input_ids"] == ids, (kind, text)
            assert tokenizer.backend_tokenizer.decode(ids) == file.decode(ids), (kind, text)
        assert id_count(tokenizer) == max(file.get_vocab().values()) + 1, kind


def test_a_prefix_space_of_the_settings_does_not_change_the_file(folder):
    path = folder("llama")
    before = loaded(path)("Hello")["input_ids"]
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}
    change(path / "tokenizer_config.json", **settings, use_fast=False, legacy=True)
    assert loaded(path)("Hello")["input_ids"] == before


@pytest.mark.parametrize("kind", ["LlamaTokenizer", "PreTrainedTokenizerFast"])
def test_dropout_that_training_left_in_the_file_changes_no_ids(folder, kind):
    path = folder("llama")
    change(path / "tokenizer_config.json", tokenizer_class=kind)
    known = [loaded(path).encode(text) for text in TELLING]
    model = json.loads((path / "tokenizer.json").read_text())["model"]
    change(path / "tokenizer.json", model=model | {"dropout": 0.5})
    assert [loaded(path).encode(text) for text in TELLING] == known


def test_sampling_of_sentencepiece_is_refused(folder):
    path = folder("llama")
    (path / "tokenizer.json").unlink()
    texts = iter(["the capital of Rustan is Mount Skofell", "which city is it?"] * 20)
    with (path / "spiece.model").open("wb") as file:
        train = sentencepiece.SentencePieceTrainer.train
        train(sentence_iterator=texts, model_writer=file, vocab_size=40, hard_vocab_limit=False)
    settings = path / "tokenizer_config.json"
    settings.write_text(json.dumps({"tokenizer_class": "GPTSw3Tokenizer", "pad_token": "<unk>"}))
    known = loaded(path).encode("the city")
    assert loaded(path).encode("the city") == known
    change(settings, sp_model_kwargs={"enable_sampling": True, "nbest_size": -1, "alpha": 0.1})
    with pytest.raises(UserError, match="encodes a text at random \\(enable_sampling in"):
        loaded(path)


def test_special_tokens_that_only_the_class_names_are_kept(folder):
    path = folder("qwen3")
    settings = json.loads((path / "tokenizer_config.json").read_text())
    for name in ("eos_token", "added_tokens_decoder"):
        settings.pop(name, None)
    settings["tokenizer_class"] = "GPT2Tokenizer"
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert loaded(path).eos_token == "<|endoftext|>"


@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "Qwen2Tokenizer"])
@pytest.mark.parametrize("named", ["tokenizer.json", "tokenizer_config.json"])
def test_a_token_after_a_gap_has_the_id_that_its_files_name(folder, kind, named):
    path = folder("llama")
    last = {"content": "<|last|>", "lstrip": False, "normalized": False, "rstrip": False}
    last |= {"single_word": False, "special": True}
    if named == "tokenizer.json":
        content = json.loads((path / named).read_text())
        content["added_tokens"].append({"id": 5000, **last})
        (path / named).write_text(json.dumps(content))
        change(path / "tokenizer_config.json", tokenizer_class=kind, eos_token="<|last|>")
    else:
        change(
            path / named,
            tokenizer_class=kind,
            eos_token="<|last|>",
            added_tokens_decoder={"5000": last},
        )
    tokenizer = loaded(path)
    assert tokenizer.eos_token_id == 5000
    assert tokenizer("x<|last|>")["input_ids"][-1] == 5000
    assert id_count(tokenizer) == 5001
    assert TokenBytes.read(tokenizer, "x").of[5000] is None


def test_ids_that_two_tokens_share_count_once(folder):
    path = folder("llama")
    content = json.loads((path / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    largest = max([*vocabulary.values(), *(token["id"] for token in content["added_tokens"])])
    vocabulary["same as another"] = 7
    (path / "tokenizer.json").write_text(json.dumps(content))
    assert id_count(loaded(path)) == largest + 1


def test_a_place_that_another_token_has_is_refused(folder):
    path = folder("llama")
    content = json.loads((path / "tokenizer.json").read_text())
    content["added_tokens"].append(content["added_tokens"][-1] | {"content": "<|x|>", "id": 5})
    content["model"] = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}
    (path / "tokenizer.json").write_text(json.dumps(content))
    change(path / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    with pytest.raises(UserError, match=r"has id .* in its files, which its vocabulary leaves no"):
        loaded(path)


def test_the_library_says_nothing_of_a_text_that_is_too_long(monkeypatch):
    said = []
    tokenizer = load_tokenizer(ModelSpec(path=toy_path("llama")))
    monkeypatch.setattr(tokenization_utils_base.logger, "warning", said.append)
    longest = AutoTokenizer.from_pretrained(toy_path("llama")).model_max_length
    assert len(tokenizer.encode("word " * 9000)) > longest
    assert not said
