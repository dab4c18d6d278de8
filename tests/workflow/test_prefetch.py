"""`snakemake prefetch`, then a run on a machine without a network."""

import json
from pathlib import Path
from typing import Any

import pytest

from adafuse.storage.parquet import read_metadata
from tests.support.checkout import BENCHMARK, Checkout
from tests.support.hub_cache import COMMIT, cached_model

from .conftest import ROOT

CONFIG: dict[str, Any] = {
    "models": {"llama": {"path": "org/llama"}},
    "benchmarks": {BENCHMARK: {"use": f"config/benchmarks/{BENCHMARK}.yaml", "limit": 3}},
    "runs": {"llama": {"method": "single", "models": ["llama"]}},
    "decode": {"device": "cpu", "gpu": 0},
}


@pytest.mark.soak
def test_what_was_fetched_is_decoded_with_at_its_commit_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached_model(tmp_path / "hub/hub", "org/llama", str(ROOT / "adafuse/toy/models/llama"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    checkout = Checkout.made(tmp_path / "checkout", CONFIG)
    checkout.run("prefetch", "--cores=1")
    record = json.loads((checkout.folder / "results/prefetched.json").read_text())
    assert record["models"] == [{"path": "org/llama", "revision": None, "commit": COMMIT}]
    checkout.run(str(checkout.trace("llama", 0).relative_to(checkout.folder)), "--cores=1")
    (model,) = read_metadata(checkout.trace("llama", 0))["job"]["models"]
    assert (model["path"], model["revision"]) == ("org/llama", COMMIT)


@pytest.mark.soak
def test_what_cannot_be_fetched_is_one_sentence_each_and_all_else_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached_model(tmp_path / "hub/hub", "org/mistral", str(ROOT / "adafuse/toy/models/mistral"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    models = {**CONFIG["models"], "mistral": {"path": "org/mistral"}}
    runs = {name: {"method": "single", "models": [name]} for name in models}
    unpinned = {"use": "config/benchmarks/flores_en_de.yaml", "scorer": "translation_13a"}
    benchmarks = {**CONFIG["benchmarks"], "flores": unpinned}
    config = {**CONFIG, "models": models, "runs": runs, "benchmarks": benchmarks}
    checkout = Checkout.made(tmp_path / "checkout", config)
    with checkout.running("prefetch", "--cores=1") as snakemake:
        assert snakemake.wait() != 0
    said = checkout.said()
    assert "error: 2 of 3 could not be fetched" in said
    assert "model 'org/llama' (revision None) cannot be downloaded" in said
    assert "benchmarks.flores: hub dataset 'facebook/flores' has no revision" in said
    assert "Traceback" not in said
    record = json.loads((checkout.folder / "results/prefetched.json").read_text())
    assert [each["path"] for each in record["models"]] == ["org/mistral"]
