"""Where models fit, by their configs alone: on this machine, and on GPUs that are only named."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from adafuse.errors import UserError
from adafuse.models import placement
from adafuse.models.doctor import Load, examination
from adafuse.models.files import weight_bytes
from adafuse.models.fit import Fit, Need, fit, gpus_named, need_of
from adafuse.models.memory import SHARE
from adafuse.models.placement import WEIGHTS_SHARE
from adafuse.models.spec import QUANTIZATIONS, ModelSpec, model_specs
from tests.conftest import toy_path

GIB = 1 << 30
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256,
    "max_position_embeddings": 8192, "num_key_value_heads": 8, "tie_word_embeddings": False,
}  # fmt: skip
SIZES: dict[str, dict[str, int]] = {
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "num_attention_heads": 32},
    "70b": {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
            "num_attention_heads": 64},
}  # fmt: skip


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders with nothing but a config."""
    root = tmp_path_factory.mktemp("models")
    for name, size in SIZES.items():
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(LLAMA | size))
    return {name: str(root / name) for name in SIZES}


def fitted(
    configs: dict[str, str], models: str, gpus: str, rows: int | None = 8, **how: Any
) -> Fit:
    specs = model_specs([configs[name] for name in models.split()], **how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adafuse.models.fit.need_of", lambda spec, *_: known(spec.path))
        return fit(specs, gpus_named(gpus), rows, 768)


@cache
def known(path: str) -> Need:
    """What a model needs on a GPU, which takes seconds to find."""
    return need_of(ModelSpec(path=path), "cuda:0", 768)


FOUR = "8b 8b 8b 8b"


@pytest.mark.parametrize(
    ("models", "gpus", "sentence", "where"),
    [
        ("8b", "24GiB", "fits as it is", "0"),
        (FOUR, "4x24GiB", "fits as it is", "0 1 2 3"),
        (FOUR, "4x80GiB", "fits with --device cuda:0", "0 0 0 0"),
        (FOUR, "80GiB", "fits as it is", "0 0 0 0"),
        (FOUR, "24GiB+80GiB", "fits with --device cuda:1", "1 1 1 1"),
        (FOUR, "2x24GiB", "fits with --quantization int8", "0 1 0 1"),
        (FOUR, "2x16GiB", "fits with --quantization int4", "0 1 0 1"),
        ("8b 8b 8b", "40GiB+24GiB", "fits as it is", "0 1 0"),
        ("8b 8b 8b", "24GiB+40GiB",
         "fits with --device cuda:0 --device cuda:1 --device cuda:1", "0 1 1"),
        ("70b", "80GiB", "fits with --quantization int8", "0"),
        ("70b", "72GiB", "fits with --quantization int4", "0"),
        ("70b", "2x80GiB", "fits with --device cuda:0+cuda:1", "0+1"),
        ("70b", "2x40GiB", "fits with --quantization int8 --batch-size auto --device cuda:0+cuda:1",
         "0+1"),
        ("70b 8b", "3x80GiB",
         "fits with --device cuda:0+cuda:1 --device cuda:2", "0+1 2"),
        ("70b 8b", "2x80GiB",
         "fits with --quantization int8 --quantization none", "0 1"),
        ("8b 8b", "2x17GiB", "fits with --batch-size auto", "0 1"),
    ],
)  # fmt: skip
def test_the_first_way_in_which_models_fit(
    configs: dict[str, str], models: str, gpus: str, sentence: str, where: str
) -> None:
    found = fitted(configs, models, gpus)
    assert found.sentence == sentence
    cards = [[f"cuda:{card}" for card in each.split("+")] for each in where.split()]
    assert [*map(list, found.where or ())] == cards


def test_what_does_not_fit_says_what_there_is_and_what_to_do(configs: dict[str, str]) -> None:
    found = fitted(configs, "70b", "24GiB")
    assert found.where is None
    assert found.sentence == (
        "does not fit: with the fewest bits and one example at a time it takes 40.1 GiB, and 21.6"
        " GiB may be taken; use more or larger GPUs, or run models on servers (docs/served.md)"
    )
    assert "leave out --device, or" in fitted(configs, "70b", "4x24GiB", device="cuda:0").sentence


def test_what_users_choose_stays(configs: dict[str, str]) -> None:
    found = fitted(configs, "8b 8b", "4x40GiB", quantization=["int4", None], device="cuda:3")
    assert found.sentence == "fits with --device cuda:3"
    assert found.forms == ("int4", None)
    with pytest.raises(UserError, match=r"no device 'cuda:5'; there are: cuda:0, cuda:1$"):
        fitted(configs, "8b", "2x24GiB", device="cuda:5")


def test_models_on_servers_take_nothing_here(configs: dict[str, str]) -> None:
    found = fitted(configs, "70b 8b", "24GiB", server=["http://a:1", None])
    assert [Path(need.model).name for need in found.needs] == ["8b"]
    assert found.sentence == "fits as it is"


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_config_alone_tells_what_files_and_the_doctor_tell(name: str, tmp_path: Path) -> None:
    path = toy_path(name)
    (tmp_path / "config.json").write_text(Path(path, "config.json").read_text())
    need = need_of(ModelSpec(path=str(tmp_path)), "cpu", 768)
    assert need.weights == {
        form or "float32": weight_bytes(path, None, "float32", form)
        for form in (None, *QUANTIZATIONS)
    }
    (load,) = examination(model_specs([path], device="cpu"), Load(8, 512, 256)).loads
    assert need.row == pytest.approx(load.per_row, rel=0.02), "but rows that are no tokens"


def test_a_model_is_spread_where_transformers_spreads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Our halves are its own, and there is no place for a model that does not fit."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    spec = ModelSpec(path=toy_path("llama"), device="cuda:0+cuda:1", dtype="float32")
    need, config = need_of(spec, "cuda:0", 8), AutoConfig.from_pretrained(spec.path)
    least = need.bytes(None, 1) / 2 + need.block
    for size, fits in ((least, True), (0.4 * need.weights["float32"], False)):
        room = int(size / WEIGHTS_SHARE) + 1
        assert (fit([spec], [room, room], 1, 8).where is not None) == fits
        there = placement.plan(spec, config, {0: int(size), 1: int(size)})
        assert ("disk" not in there.values()) == fits
        assert not fits or {*there.values()} == {0, 1}


def test_without_a_gpu_the_memory_of_this_machine_counts(
    configs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("adafuse.models.fit.free_memory", lambda device: 20 * GIB)
    (need,) = (found := fit(model_specs([configs["8b"]]), None, 8, 768)).needs
    assert need.dtype == "float32"
    assert found.rooms == {"cpu": 18 * GIB}
    assert found.sentence == "fits with --quantization int8"
    narrow = fit(model_specs([configs["8b"]], dtype="bfloat16"), None, None, 768)
    assert narrow.sentence == "fits as it is"
    assert narrow.needs[0].bytes(None, 1) == need.weights["float32"] // 2 + int(
        narrow.needs[0].row / SHARE
    )
    too_large = fit(model_specs([configs["70b"]]), None, 8, 768).sentence
    assert "try --dtype bfloat16, use more or larger GPUs, or run" in too_large


@pytest.mark.parametrize("text", ["", "4", "4*80GiB", "80", "2x24GiB,80GiB", "0x24GiB"])
def test_gpus_that_are_no_gpus_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not a list of GPUs; write one such as 4x80GiB or"):
        gpus_named(text)


def test_gpus_are_named_by_number_and_size() -> None:
    assert gpus_named("2x24GiB+80GB") == [24 * GIB, 24 * GIB, 80 * 10**9]


def test_a_quantized_checkpoint_counts_by_its_files(tmp_path: Path) -> None:
    settings = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (tmp_path / "config.json").write_text(
        json.dumps(LLAMA | SIZES["8b"] | {"quantization_config": settings})
    )
    with pytest.raises(UserError, match=r"are quantized \(bitsandbytes\).*; download them first"):
        need_of(ModelSpec(path=str(tmp_path)), "cuda:0", 8)


def test_a_config_of_no_language_model_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(UserError, match=r"cannot be loaded: Unrecognized configuration class"):
        need_of(ModelSpec(path=str(tmp_path)), "cuda:0", 8)
