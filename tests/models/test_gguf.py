"""Models in GGUF files: the toy model llama, written as such a file, is the same model."""

import json
import logging
import shutil
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import load_file, save_file

from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models.doctor import Load, examination
from adafuse.models.files import content_digest, weight_bytes
from adafuse.models.gguf_file import gguf_ends
from adafuse.models.hub import check_path, parsed_gguf
from adafuse.models.language_model import load_config
from adafuse.models.spec import ModelSpec
from adafuse.models.tokenizers import load_tokenizer
from tests.conftest import toy_path

gguf = pytest.importorskip("gguf", reason="needs the package gguf")
TOY = Path(toy_path("llama"))
MODEL = "model.safetensors"
PROMPT = "Question: Who founded the town of Orrin?\nAnswer:"
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    name = name.removeprefix("model.")
    if not name.startswith("layers."):
        return {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}[
            name
        ]
    _, layer, rest = name.split(".", 2)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def interleaved(name: str, tensor: torch.Tensor, config: dict) -> torch.Tensor:
    """Return queries and keys in the order of rows that GGUF has, which rotates neighbours."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return tensor
    heads = len(tensor) // config["head_dim"]
    return tensor.view(heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy model in float32, with its tokenizer."""
    return written(tmp_path_factory.mktemp("gguf") / "toy.gguf")


def written(path: Path, eos: int = 2, **more: numpy.ndarray) -> Path:
    """Write the toy model in float32, with its tokenizer; `__` in a name of weights is a dot."""
    config = json.loads((TOY / "config.json").read_text())
    tokenizer = json.loads((TOY / "tokenizer.json").read_text())
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt2")
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    special = {token["content"] for token in tokenizer["added_tokens"]}
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_eos_token_id(eos)
    writer.add_pad_token_id(0)
    for name, tensor in load_file(TOY / MODEL).items():
        writer.add_tensor(gguf_name(name), interleaved(name, tensor.float(), config).numpy())
    for name, weights in more.items():
        writer.add_tensor(name.replace("__", "."), weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_is_the_model_that_was_written_into_it(file: Path) -> None:
    one, other = (
        Ensemble.from_pretrained([str(path)], device="cpu").models[0] for path in (TOY, file)
    )
    assert other.name == str(file) and other.context == one.context
    assert 2 in other.end_ids
    ids = torch.tensor([one.prompt_ids(PROMPT)])
    with torch.no_grad():
        expected, found = (model.network(ids).logits for model in (one, other))
    assert torch.allclose(expected, found, atol=1e-4)


def test_every_key_that_names_ends_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ends.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(["a", "b", "c"])
    writer.add_token_scores([0.0, -1.0, -2.5])
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages }}")
    writer.add_eot_token_id(1)
    writer.add_array("tokenizer.ggml.eos_token_ids", [2, 0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert sorted(gguf_ends(str(path), None)) == [0, 1, 2, 2]
    path.write_bytes(path.read_bytes()[:60])
    assert gguf_ends(str(path), None) == []


def test_it_is_fused_with_a_model_in_a_folder(file: Path) -> None:
    pair = Ensemble.from_pretrained([str(file), toy_path("llama")], device="cpu")
    (result,) = pair.generate([PROMPT], max_new_tokens=12)
    assert result.text and result.stop_reason in ("eos", "length")


def test_it_is_parsed_once_and_its_copy_in_a_folder_writes_the_same(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parsed, parse = list[str](), gguf.gguf_reader.GGUFReader._build_fields
    monkeypatch.setattr(
        gguf.gguf_reader.GGUFReader,
        "_build_fields",
        lambda self, *place: parsed.append("once") or parse(self, *place),
    )
    ensemble = Ensemble.from_pretrained([str(file)], device="cpu")
    assert parsed == ["once"] and parsed_gguf.cache_info().currsize == 0
    assert f"reading {file.name}, which can take a minute" in caplog.text
    (model,) = ensemble.models
    model.network.generation_config.eos_token_id = sorted(model.end_ids)
    del model.network.hf_quantizer, model.network.config.quantization_config
    for part in (model.network, model.tokenizer):
        part.save_pretrained(tmp_path)
    copy = Ensemble.from_pretrained([str(tmp_path)], device="cpu")
    assert copy.models[0].end_ids.keys() == model.end_ids.keys()
    (one,), (other,) = (e.generate([PROMPT], max_new_tokens=12) for e in (ensemble, copy))
    assert one.text == other.text and one.stop_reason == other.stop_reason


def test_its_content_and_size_are_known(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(file.read_bytes())
    assert content_digest(str(copy)) == content_digest(str(file)) is not None
    assert weight_bytes(str(file), None, "float32") == weight_bytes(str(TOY), None, "float32")


def test_it_is_not_quantized_again(file: Path) -> None:
    spec = ModelSpec(path=str(file), quantization="int8")
    with pytest.raises(UserError, match="is quantized already; leave out quantization 'int8'"):
        load_config(spec)


def test_weights_that_are_missing_or_of_another_shape_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("transformers"), "handlers", [caplog.handler])
    folder = shutil.copytree(TOY, tmp_path / "toy")
    weights = load_file(TOY / MODEL)
    name = "model.layers.0.mlp.up_proj.weight"
    save_file({key: value for key, value in weights.items() if key != name}, folder / MODEL)
    with pytest.raises(UserError, match=f"has no weights {name}"):
        Ensemble.from_pretrained([str(folder)], device="cpu")
    save_file(weights | {name: weights[name].repeat(2, 1)}, folder / MODEL)
    with pytest.raises(UserError, match="has weights of other shapes than its config names"):
        Ensemble.from_pretrained([str(folder)], device="cpu")
    assert "REPORT" not in caplog.text, "that of transformers"


def test_a_file_that_is_cut_off_is_one_sentence(file: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(UserError, match=r"cut.gguf' is cut off; download it again"):
        Ensemble.from_pretrained([str(cut)], device="cpu")


def test_an_end_that_is_not_in_the_vocabulary_is_one_sentence(tmp_path: Path) -> None:
    path = str(written(tmp_path / "a.gguf", eos=99_999))
    with pytest.raises(UserError, match=r"tokenizer in the GGUF file of model .* cannot be read"):
        load_tokenizer(ModelSpec(path=path))


def test_what_is_no_gguf_file_is_one_sentence(tmp_path: Path, monkeypatch) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(50))
    with pytest.raises(UserError, match=r"'.*broken.gguf' cannot be loaded"):
        Ensemble.from_pretrained([str(broken)], device="cpu")
    with pytest.raises(UserError, match=r"is not a folder; give a model folder, a \.gguf file or"):
        check_path("./none.gguf")
    check_path("org/name/file.gguf")
    monkeypatch.setattr("adafuse.models.hub.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install '\.\[gguf\]'"):
        check_path(str(broken))


def header(path: Path, architecture: str, kind: str = "gpt2", pre: str = "gpt2", **keys) -> Path:
    """A file without weights; `__` in a key is a dot, and keys begin with the architecture."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_block_count(2)
    writer.add_feed_forward_length(8)
    writer.add_head_count(2)
    if keys.pop("head_count_kv", True):
        writer.add_head_count_kv(1)
    writer.add_key_length(size := keys.pop("key_length", 256 if "gemma" in architecture else 4))
    writer.add_value_length(size)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(5)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(["<s>", "a", "b", "ab", "ba"])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    for key, value in keys.items():
        if key.startswith("rope_f"):
            writer.add_tensor(f"{key}.weight", numpy.ones(2, numpy.float32))
            continue
        kinds = {bool: writer.add_bool, float: writer.add_float32, str: writer.add_string}
        kinds |= {int: writer.add_uint32}
        name = key if key.startswith("tokenizer") else f"{architecture}.{key}"
        kinds[type(value)](name.replace("__", "."), value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


SCALING = "a scaling of rotary positions"


@pytest.mark.parametrize(
    ("architecture", "keys", "unread"),
    [
        ("llama", {"rope_freqs": True}, SCALING),
        ("llama", {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}, SCALING),
        ("qwen2", {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}, SCALING),
        ("gemma3", {"rope__scaling__factor": 8.0}, SCALING),
        ("gemma2", {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping 30"),
        ("starcoder2", {"rope__freq_base": 1e6}, "rope.freq_base 1e\\+06"),
        ("stablelm", {"rope__dimension_count": 2}, "rope.dimension_count 2"),
        ("phi3", {"attention__sliding_window": 48}, "attention.sliding_window 48"),
        ("gemma2", {"key_length": 128}, "a scale of attention"),
    ],
)
def test_what_transformers_does_not_read_is_refused(
    tmp_path: Path, architecture, keys, unread
) -> None:
    file = header(tmp_path / "a.gguf", architecture, **keys)
    told = f"has {unread}, which transformers does not read from a GGUF file; name the folder"
    with pytest.raises(UserError, match=told):
        load_config(ModelSpec(path=str(file)))
    load_config(ModelSpec(path=str(file), server="http://127.0.0.1:1"))


@pytest.mark.parametrize(
    ("architecture", "keys"),
    [
        ("llama", {"rope__freq_base": 5e5, "rope__scaling__type": "none"}),
        ("qwen2", {"rope__scaling__type": "linear", "rope__scaling__factor": 1.0}),
        ("gemma3", {"rope__freq_base": 1e6}),
        ("gemma2", {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}),
        ("gemma2", {"attention__sliding_window": 48}),
        ("phi3", {"attention__sliding_window": 64, "rope__dimension_count": 4}),
        ("stablelm", {"rope__dimension_count": 1}),
    ],
)
def test_what_transformers_reads_is_taken(tmp_path: Path, architecture, keys) -> None:
    load_config(ModelSpec(path=str(header(tmp_path / "a.gguf", architecture, **keys))))


def test_weights_that_would_be_read_in_another_order_are_refused(tmp_path: Path) -> None:
    path = header(tmp_path / "a.gguf", "llama", head_count_kv=False)
    with pytest.raises(UserError, match=r"has no attention.head_count_kv, without which"):
        load_config(ModelSpec(path=str(path)))


def test_weights_that_the_network_does_not_have_are_refused(tmp_path: Path) -> None:
    bias = written(tmp_path / "a.gguf", blk__1__attn_q__bias=numpy.ones(144, numpy.float32))
    with pytest.raises(UserError, match=r"has weights blk.1.attn_q.bias, which transformers does"):
        Ensemble.from_pretrained([str(bias)], device="cpu")
    report = examination([ModelSpec(path=str(bias), device="cpu")], Load(8, 64, 64))
    assert ["has weights blk.1.attn_q.bias" in each.sentence for each in report.findings] == [True]


@pytest.mark.parametrize(
    ("pre", "flag", "start", "told"),
    [
        ("gpt-2", {}, [], False),
        ("llama-bpe", {}, [0], False),
        ("llama-bpe", {"tokenizer__ggml__add_bos_token": False}, [], False),
        ("tekken", {}, [0], False),
        ("qwen2", {}, [], False),
        ("qwen2", {"tokenizer__ggml__add_bos_token": True}, [0], False),
        ("viking", {}, [], True),
    ],
)
def test_a_prompt_begins_as_llama_cpp_begins_it_and_unknown_splits_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pre, flag, start, told
) -> None:
    file = header(tmp_path / "a.gguf", "llama", pre=pre, **flag)
    tokenizer = load_tokenizer(ModelSpec(path=str(file)))
    assert tokenizer("a").input_ids == [*start, 1]
    whole = [4] if pre in ("llama-bpe", "tekken") else [2, 1]  # "ba", which no merge makes
    assert tokenizer("ba").input_ids[len(start) :] == whole
    assert (f"splits text as '{pre}', which transformers does not know" in caplog.text) == told


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (
            {"general.type": "adapter", "adapter.type": "lora"},
            "is a LoRA or other adapter, not a mod",
        ),
        (
            {"adapter.type": "lora"},
            "is a LoRA or other adapter, not a model; merge it into its base",
        ),
        (
            {"general.type": "mmproj"},
            "is 'mmproj', not a model; name the file of the language model",
        ),
    ],
)
def test_what_is_no_model_is_called_what_it_is(tmp_path: Path, keys, sentence) -> None:
    path = tmp_path / "lora.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in keys.items():
        writer.add_string(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    for load in (lambda: check_path(str(path)), lambda: Ensemble.from_pretrained([path])):
        with pytest.raises(UserError, match=sentence):
            load()


def test_texts_that_would_get_a_space_before_them_are_refused(tmp_path: Path) -> None:
    flag = {"tokenizer__ggml__add_space_prefix": False}
    path = header(tmp_path / "a.gguf", "llama", kind="llama", **flag)
    with pytest.raises(UserError, match="puts no space before a text"):
        load_tokenizer(ModelSpec(path=str(path)))
    gemma = header(tmp_path / "b.gguf", "gemma2", kind="llama", **flag)
    assert load_tokenizer(ModelSpec(path=str(gemma)))("a").input_ids[-1] == 1


def test_a_file_is_looked_for_in_its_own_folder() -> None:
    places = {"/a.gguf": "/", "a.gguf": ".", "./b/a.gguf": "./b", "/b/a.gguf": "/b"}
    found = {path: ModelSpec(path=path).source for path in places}
    assert found == {path: (folder, "a.gguf") for path, folder in places.items()}
