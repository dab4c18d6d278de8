"""Downloading hub models; what is in the cache already stands for the hub."""

from pathlib import Path

import pytest

from adafuse.errors import UserError
from adafuse.models import download as module
from adafuse.models.download import download
from tests.conftest import toy_path
from tests.support.hub_cache import COMMIT, cached_model


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_the_folder_of_a_model_has_the_name_of_its_commit(
    cache: Path, revision: str | None
) -> None:
    snapshot = cached_model(cache, "org/llama", toy_path("llama"))
    assert download("org/llama", revision) == snapshot
    assert snapshot.name == COMMIT


@pytest.mark.parametrize("path", ["org/absent", "org/no valid name"])
def test_a_model_that_cannot_be_downloaded_is_one_sentence(cache: Path, path: str) -> None:
    with pytest.raises(UserError, match=rf"model '{path}' \(revision None\) cannot be downloaded"):
        download(path, None)


def test_a_model_without_safetensors_is_refused_before_any_job_needs_it(cache: Path) -> None:
    snapshot = cached_model(cache, "org/llama", toy_path("llama"))
    (snapshot / "model.safetensors").rename(snapshot / "pytorch_model.bin")
    with pytest.raises(UserError, match=f"no safetensors weights at commit {COMMIT}"):
        download("org/llama", None)


def test_what_is_downloaded_is_what_loading_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub.utils import filter_repo_objects

    offered = [path.name for path in Path(toy_path("llama")).iterdir()]
    others = ["pytorch_model.bin", "consolidated.safetensors", "original/model.safetensors", "x.py"]
    kept = filter_repo_objects(
        [*offered, *others],
        allow_patterns=list(module.WANTED),
        ignore_patterns=list(module.UNWANTED),
    )
    assert sorted(kept) == sorted(offered)
