"""Whose results a record and a split are said to be."""

import json
from pathlib import Path

import pytest
import yaml

from adafuse.config.config import Config
from adafuse.config.reading import parse_config
from adafuse.export.dataset import dataset_card, model_info
from adafuse.report.stored import StoredResults

MODELS = {
    "plain": {"path": "org/m"},
    "tuned": {"path": "org/m", "adapter": "ADAPTER"},
    "small": {"path": "org/m", "quantization": "int4"},
    "chat": {"path": "org/m", "chat": True},
}
VALUES = {
    "models": MODELS,
    "benchmarks": {
        name: {
            "source": {"file": "adafuse/toy/benchmarks/toy_qa.jsonl"}, "prompt": "{question}",
            "scorer": "nq", "max_new_tokens": 4,
        }
        for name in ("qa", "qa_best")
    },
    "runs": {name: {"method": "single", "models": [name]} for name in MODELS}
    | {
        "short": {"method": "single", "models": ["plain"], "max_rounds": 1},
        "a-b": {"method": "adafuse", "models": ["plain", "chat"]},
        "a_b": {"method": "fixed_length", "models": ["plain", "chat"]},
        "best": {"method": "best_of", "models": ["plain", "chat"]},
    },
}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (tmp_path / "adapter_model.safetensors").touch()
    tuned = MODELS["tuned"] | {"adapter": str(tmp_path)}
    return parse_config({**VALUES, "models": {**MODELS, "tuned": tuned}})


def test_only_a_model_as_it_is_has_the_name_of_the_hub(config: Config) -> None:
    said = {run: model_info(config, run) for run in config.runs}
    assert [run for run in said if said[run]["id"] == "org/m"] == ["plain", "chat"]
    details = [json.dumps(said[run]["additional_details"]) for run in (*MODELS, "short")]
    assert len(set(details)) == len(details)


def test_what_a_server_has_under_another_name_is_not_the_model_of_the_hub(config: Config) -> None:
    url = "http://node1:8000"
    serve = {"engine": "vllm", "command": "/envs/vllm"}
    models = {
        "same": {"path": "org/m", "server": url, "server_model": "org/m"},
        "lora": {"path": "org/m", "server": url, "server_model": "my-lora"},
        "started": {"path": "org/m", "serve": serve},
        "fp8": {"path": "org/m", "serve": serve | {"args": ["--quantization", "fp8"]}},
    }
    runs = {name: {"method": "single", "models": [name]} for name in models}
    runs["loaded"] = {"method": "single", "models": ["lora"], "served": False}
    made = Config.model_validate({**VALUES, "models": models, "runs": runs})
    said = {run: model_info(made, run) for run in runs}
    hub = [run for run, info in said.items() if info["id"] == "org/m"]
    assert hub == ["same", "started", "loaded"]
    settings = {
        run: json.loads(i["additional_details"]["model_settings"])[0] for run, i in said.items()
    }
    assert [run for run in runs if settings[run].get("on_server")] == [*models]
    assert settings["lora"]["server_model"] == "my-lora"


def test_no_two_runs_share_a_split_and_no_choice_a_benchmark_s_name(config: Config) -> None:
    card = dataset_card(
        StoredResults(config, {name: list(config.runs) for name in config.benchmarks})
    )
    configs = yaml.safe_load(card.split("---\n")[1])["configs"]
    names = [each["config_name"] for each in configs]
    assert names == ["qa", "qa_best_", "qa_best", "qa_best_best"]
    files = [(c["config_name"], f["split"], f["path"]) for c in configs for f in c["data_files"]]
    assert len({place[:2] for place in files}) == len(files) == 2 * len(config.runs)
    assert {name: path.split("/")[0] for name, _, path in files} == {
        "qa": "qa", "qa_best_": "qa", "qa_best": "qa_best", "qa_best_best": "qa_best",
    }  # fmt: skip


def test_the_card_names_adapters(config: Config, tmp_path: Path) -> None:
    card = dataset_card(StoredResults(config, {"qa": ["plain", "tuned"]}))
    assert "| plain | single | org/m |\n" in card
    assert f"| tuned | single | org/m + {tmp_path.name} |\n" in card
