"""Commits written into configurations, whose layout and comments stay."""

import gzip
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from adafuse.config.reading import read_config
from adafuse.errors import UserError
from adafuse.models import hub as models_hub
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.pin import pin
from tests.conftest import toy_path
from tests.support.hub_cache import COMMIT, cached_model

OTHER = "f" * 40

CONFIG = """\
# My comparison.
results: {results}
models:
  mistral: {{path: org/mistral, chat: false}}   # in one line
  llama:
    path: org/llama  # the better one
    chat: auto

  pinned: {{path: org/pinned, revision: v2}}
  here: {{path: {here}}}
  "quoted": {{"path": "org/quoted", "revision": null}}
benchmarks:
  mt: {{use: mt.yaml}}
  mt_dev:
    use: mt.yaml
    source: {{split: dev}}
  own: {{use: mt.yaml, source: {{dataset: org/own}}}}
runs:
  llama: {{method: single, models: [llama]}}
  mistral: {{method: single, models: [mistral]}}
  blended:
    method: llm_blender
    models: [llama, mistral]
    options: {{ranker: org/ranker, rank_only: true}}
"""
USED = """\
# Translations.
source:
  dataset: facebook/flores
  split: devtest
  # Pin the commit.
  # revision: COMMIT
  fields: {question: sentence, answer: sentence, id: id}
prompt: "{question}"
max_new_tokens: 8
scorer: translation_13a
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A hub that knows everything; what it was asked for."""
    places: list[str] = []

    def repo_info(name: str, repo_type: str, timeout: int) -> SimpleNamespace:
        places.append(f"{repo_type}s/{name}")
        return SimpleNamespace(sha=COMMIT)

    hub = SimpleNamespace(repo_info=repo_info)
    monkeypatch.setattr(models_hub, "ask_hub", lambda question, kind, name: question(hub))
    return places


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    Path("mt.yaml").write_text(USED)
    file = Path("my.yaml")
    file.write_text(CONFIG.format(results="results", here=toy_path("llama")))
    return file


def test_commits_are_put_beside_what_they_are_of_and_nothing_else_changes(
    config: Path, asked: list[str]
) -> None:
    before = config.read_text()
    assert len(pin(config)) == 6
    expected = (
        before.replace("path: org/mistral,", f"path: org/mistral, revision: {COMMIT},")
        .replace("  # the better one", f"  # the better one\n    revision: {COMMIT}")
        .replace("null", f'"{COMMIT}"')
        .replace("dataset: org/own", f"dataset: org/own, revision: {COMMIT}")
        .replace("ranker: org/ranker", f"ranker: org/ranker, ranker_revision: {COMMIT}")
    )
    assert config.read_text() == expected
    flores = "facebook/flores"
    assert Path("mt.yaml").read_text() == USED.replace(flores, f"{flores}\n  revision: {COMMIT}")
    datasets = ["datasets/facebook/flores", "datasets/org/own"]
    models = [f"models/org/{name}" for name in ("mistral", "llama", "quoted", "ranker")]
    assert sorted(asked) == sorted([*models, *datasets]), "each is asked for once"


def test_what_has_a_revision_keeps_it(config: Path, asked: list[str]) -> None:
    pin(config)
    assert read_config(config).models["pinned"].revision == "v2"
    written = config.read_text(), Path("mt.yaml").read_text()
    assert pin(config) == []
    assert (config.read_text(), Path("mt.yaml").read_text()) == written


def test_a_recorded_commit_goes_before_the_hubs(config: Path, asked: list[str]) -> None:
    record = ResultsLayout("results").commits
    record.parent.mkdir()
    record.write_text(
        f'{{"models": [{{"path": "org/llama", "revision": null, "commit": "{OTHER}"}}]}}'
    )
    (llama,) = (each for each in pin(config) if each.path == "org/llama")
    assert (llama.commit, llama.source) == (OTHER, "results of `snakemake prefetch`")
    assert read_config(config).models["llama"].revision == OTHER


def test_without_the_hub_the_cache_is_asked_and_all_is_written_or_nothing(
    config: Path, tmp_path: Path
) -> None:
    cached_model(tmp_path / "hub", "org/mistral", toy_path("mistral"))
    before = config.read_text()
    with pytest.raises(UserError, match=r"asked for model 'org/llama' \(HF_HUB_OFFLINE is set\)"):
        pin(config)
    assert config.read_text() == before
    for repository in ("org/llama", "org/quoted", "org/ranker"):
        cached_model(tmp_path / "hub", repository, toy_path("llama"), OTHER)
    for dataset in ("facebook--flores", "org--own"):
        refs = tmp_path / "hub" / f"datasets--{dataset}" / "refs"
        refs.mkdir(parents=True)
        (refs / "main").write_text(OTHER)
    assert {each.source for each in pin(config)} == {"this machine's cache"}
    revisions = {name: model.revision for name, model in read_config(config).models.items()}
    assert (revisions["mistral"], revisions["llama"]) == (COMMIT, OTHER)


def test_a_hub_that_is_not_reached_is_one_sentence(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(models_hub, "ask_hub", fails)
    with pytest.raises(UserError, match=r"no route to host.*and it is not in the cache"):
        pin(config)


def test_a_gzipped_configuration_is_not_written(config: Path, asked: list[str]) -> None:
    packed = config.with_name("my.yaml.gz")
    packed.write_bytes(gzip.compress(config.read_bytes()))
    with pytest.raises(UserError, match=r"my\.yaml\.gz: .* cannot be written without .* yourself"):
        pin(packed)


@pytest.mark.parametrize("written", ["{<<: *base}", "*base"])
def test_what_is_written_once_for_several_is_pinned_once_or_refused(
    config: Path, asked: list[str], written: str
) -> None:
    text = config.read_text().replace("{path: org/mistral, chat: false}", "&base {path: org/m}")
    config.write_text(text.replace(f"{{path: {toy_path('llama')}}}", written))
    if written == "*base":
        pin(config)
        assert read_config(config).models["here"].revision == COMMIT
        assert config.read_text().count("org/m, revision") == 1
        return
    before = config.read_text()
    with pytest.raises(UserError, match=r"my.yaml: models.\w+.revision cannot be written without"):
        pin(config)
    assert config.read_text() == before


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_line_ends_stay(config: Path, asked: list[str], line_end: str) -> None:
    config.write_bytes(config.read_text().replace("\n", line_end).encode())
    pin(config)
    assert config.read_bytes().count(b"\r\n") == (
        config.read_bytes().count(b"\n") if line_end != "\n" else 0
    )
    assert yaml.safe_load(config.read_text())["models"]["llama"]["revision"] == COMMIT


def test_the_file_that_a_link_leads_to_is_written(config: Path, asked: list[str]) -> None:
    link = config.with_name("link.yaml")
    link.symlink_to(config.name)
    pin(link)
    assert link.is_symlink() and COMMIT in config.read_text()
