"""Downloading hub models; what is in the cache already stands for the hub."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub.utils import filter_repo_objects

from adafuse.errors import UserError
from adafuse.models.hub import (
    DUPLICATES,
    OnHub,
    code_elsewhere,
    dataset_on_hub,
    download,
    file_patterns,
    model_on_hub,
)
from adafuse.models.spec import ModelEntry
from tests.conftest import toy_path
from tests.support.hub import TOKEN, Hub, standing_hub
from tests.support.hub_cache import COMMIT, cached_model

OTHERS = ["consolidated.safetensors", "original/model.safetensors", "model.gguf"]


class Downloads:
    """Stands for the hub's download: keeps what is asked for of some files, in a folder."""

    def __init__(self, folder: Path, models: dict[str, dict[str, str]]) -> None:
        self.folder = folder
        self.models = models

    def __call__(self, path: str, *, revision: str | None, **patterns: list[str]) -> str:
        folder = self.folder / path.replace("/", "--") / (revision or COMMIT)
        for name in filter_repo_objects(self.models[path], **patterns):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(self.models[path][name])
        return str(folder)

    def kept(self) -> list[str]:
        files = (file for file in self.folder.rglob("*") if file.is_file())
        return sorted(file.name for file in files)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Downloads:
    """A hub with one model, whose code is in part that of another."""
    classes = {"AutoConfig": "x.Config", "AutoModelForCausalLM": "org/code--y.Model"}
    files = {
        "config.json": json.dumps({"auto_map": classes}),
        "tokenizer_config.json": json.dumps(
            {"auto_map": {"AutoTokenizer": ["more/code--z.T", None]}}
        ),
        "pytorch_model-00001-of-00001.bin": "",
        "pytorch_model.bin.index.json": "{}",
        "training_args.bin": "",
        "x.py": "",
    }
    others = {"org/code": {"y.py": "", "config.json": "{}"}, "more/code": {"z.py": ""}}
    made = Downloads(tmp_path / "hub", {"org/pickled": files} | others)
    monkeypatch.setattr("huggingface_hub.snapshot_download", made)
    return made


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
    assert download(ModelEntry(path="org/llama", revision=revision)) == snapshot
    assert snapshot.name == COMMIT


@pytest.mark.parametrize("path", ["org/absent", "org/no valid name"])
def test_a_model_that_cannot_be_downloaded_is_one_sentence(cache: Path, path: str) -> None:
    with pytest.raises(UserError, match=rf"model '{path}' \(revision None\) cannot be downloaded"):
        download(ModelEntry(path=path))


def test_a_model_without_safetensors_is_refused_before_any_job_needs_it(hub: Downloads) -> None:
    sentence = rf"'org/pickled' \(commit {COMMIT}\) has no safetensors weights, .* set allow_pickle"
    with pytest.raises(UserError, match=sentence):
        download(ModelEntry(path="org/pickled"))
    assert not [name for name in hub.kept() if name.endswith((".bin", ".py"))]


def test_no_weights_of_a_model_on_a_server_come_along(hub: Downloads) -> None:
    hub.models["org/pickled"]["model.safetensors"] = ""
    download(ModelEntry(path="org/pickled", server="http://node7:8000"))
    assert "config.json" in hub.kept()
    assert not [name for name in hub.kept() if name.endswith((".bin", ".safetensors"))]


def test_pickled_weights_come_along_where_they_are_allowed(hub: Downloads) -> None:
    folder = download(ModelEntry(path="org/pickled", revision="v2", allow_pickle=True))
    assert folder.name == "v2"
    assert [name for name in hub.kept() if name.endswith((".bin", ".py"))] == [
        "pytorch_model-00001-of-00001.bin"
    ]
    assert "pytorch_model.bin.index.json" in hub.kept()


def test_pickled_weights_are_not_wanted_beside_safetensors(hub: Downloads) -> None:
    hub.models["org/pickled"]["model.safetensors"] = ""
    download(ModelEntry(path="org/pickled", allow_pickle=True))
    assert "model.safetensors" in hub.kept()
    assert not [name for name in hub.kept() if name.endswith(".bin")]


def test_code_comes_along_where_it_is_trusted_that_of_other_models_too(hub: Downloads) -> None:
    hub.models["org/pickled"]["model.safetensors"] = ""
    download(ModelEntry(path="org/pickled"))
    assert not [name for name in hub.kept() if name.endswith(".py")]
    folder = download(ModelEntry(path="org/pickled", trust_remote_code=True))
    assert code_elsewhere(folder) == {"more/code", "org/code"}
    assert [name for name in hub.kept() if name.endswith(".py")] == ["x.py", "y.py", "z.py"]
    assert hub.kept().count("config.json") == 1, "of other models only their code"


def test_a_model_without_any_weights_is_one_sentence(hub: Downloads) -> None:
    del hub.models["org/pickled"]["pytorch_model-00001-of-00001.bin"]
    with pytest.raises(UserError, match="has no weights that can be loaded; name another revision"):
        download(ModelEntry(path="org/pickled", allow_pickle=True))


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_damaged_configuration_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"config.json' is not a JSON object; download it again"):
        code_elsewhere(tmp_path)


def test_what_is_downloaded_is_what_loading_reads() -> None:
    files = [path.name for path in Path(toy_path("llama")).iterdir()]
    offered = [name for name in files if name != "README.md"]
    kept = filter_repo_objects(
        [*files, *OTHERS, "pytorch_model.bin", "x.py"],
        allow_patterns=list(file_patterns(ModelEntry(path="org/llama"))),
        ignore_patterns=list(DUPLICATES),
    )
    assert sorted(kept) == sorted(offered)


SIZES = {
    "config.json": 1, "tokenizer.json": 20, "model.safetensors": 300, "pytorch_model.bin": 4000,
    "original/model.safetensors": 50000, "code.py": 600000, "q4.gguf": 7000000,
}  # fmt: skip
"""The files of every repository of the hub that answers, and their bytes."""
GATED = frozenset({"models/org/gated", "datasets/org/gated"})


@pytest.fixture
def standing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that is asked about repositories, some of them gated."""
    for name, size in SIZES.items():
        file = tmp_path / "repository" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.truncate(file, size)
    repositories = dict.fromkeys({"models/org/free", *GATED}, tmp_path / "repository")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with standing_hub({**repositories}, GATED) as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        yield hub


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ({"path": "org/free"}, 321),
        ({"path": "org/free", "allow_pickle": True}, 321),
        ({"path": "org/free", "trust_remote_code": True}, 600321),
        ({"path": "org/free/q4.gguf"}, 7000000),
    ],
)
def test_the_hub_says_how_much_a_download_is(standing: Hub, model: dict, size: int) -> None:
    assert model_on_hub(ModelEntry(**model)) == OnHub(size, "open to all")


def test_the_hub_says_whether_a_gated_model_or_dataset_is_open(
    standing: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = "{} 'org/gated' is gated; accept its terms at {}/{}org/gated and set HF_TOKEN"
    found = model_on_hub(ModelEntry(path="org/gated"))
    assert found == OnHub(321, closed.format("model", standing.url, ""))
    found = dataset_on_hub("org/gated", None)
    assert found == OnHub(sum(SIZES.values()), closed.format("dataset", standing.url, "datasets/"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert model_on_hub(ModelEntry(path="org/gated")) == OnHub(321, "gated, and open to your token")
    absent = model_on_hub(ModelEntry(path="org/absent"))
    assert absent.bytes is None
    assert absent.access.startswith("model 'org/absent' is not on the hub, or is private")


def test_without_a_network_the_hub_is_not_asked() -> None:
    assert model_on_hub(ModelEntry(path="org/free")) == OnHub(
        None, "not known, as the hub cannot be asked (HF_HUB_OFFLINE is set)"
    )
