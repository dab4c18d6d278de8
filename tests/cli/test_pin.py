"""`adafuse pin` says what it wrote, and asks the hub over HTTP."""

import json

import pytest
from typer.testing import CliRunner

from adafuse.cli.main import app
from tests.support.hub import standing_hub
from tests.support.hub_cache import COMMIT

CONFIG = """\
models: {llama: {path: org/llama}}
benchmarks:
  qa: {source: {dataset: org/qa, split: test}, prompt: "{question}", max_new_tokens: 8, scorer: nq}
runs: {llama: {method: single, models: [llama]}}
"""


def pin(*words):
    return CliRunner().invoke(app, ["pin", *words])


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(CONFIG)
    with standing_hub({"models/org/llama": None, "datasets/org/qa": None}) as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        yield hub


def test_each_commit_is_printed_with_its_place_and_a_second_time_there_is_nothing_to_pin(hub):
    assert pin("my.yaml").stdout == (
        f"my.yaml: models.llama.revision: {COMMIT} (org/llama, from the hub)\n"
        f"my.yaml: benchmarks.qa.source.revision: {COMMIT} (org/qa, from the hub)\n"
        "2 commits written into 1 file\n"
    )
    assert pin("my.yaml").stdout == "nothing to pin: all that is of the hub has a revision\n"
    assert json.loads(pin("my.yaml", "--json").stdout) == {"pinned": []}


def test_what_the_hub_does_not_know_is_one_sentence(hub):
    del hub.repositories["models/org/llama"]
    told = str(pin("my.yaml").exception)
    assert told == "model 'org/llama' is not on the hub, or is private; check its name and HF_TOKEN"
