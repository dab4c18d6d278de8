"""Models downloaded once, and the commits that are used from then on."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adafuse.config.config import Config
from adafuse.config.reading import parse_config
from adafuse.errors import UserError
from adafuse.models.spec import ModelEntry
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.plan import Plan
from adafuse.workflow.prefetch import hub_models, prefetch, with_commits
from tests.conftest import toy_path
from tests.support.hub import TOKEN, standing_hub


class Hub:
    """A hub whose models all stand at one commit; knows what it was asked for."""

    def __init__(self, commit: str) -> None:
        self.commit = commit
        self.asked: list[ModelEntry] = []

    def __call__(self, model: ModelEntry) -> Path:
        self.asked.append(model)
        return Path("cache") / (model.revision or self.commit)


@pytest.fixture
def config(values: dict[str, Any]) -> Config:
    """A hub model without a revision, another with one that no run uses."""
    values["models"]["hub"]["revision"] = None
    values["models"]["unused"] = {"path": "org/unused"}
    return parse_config(values)


def blended(values: dict[str, Any]) -> Config:
    values["models"]["hub"]["revision"] = None
    values["runs"]["right"] = {"method": "single", "models": ["right"]}
    options = {"ranker": "org/ranker", "fuser": "org/fuser", "fuser_revision": "abc"}
    values["runs"]["both"].update(method="llm_blender", options=options)
    return parse_config(values)


def record_file(config: Config) -> Path:
    return ResultsLayout(config.results).commits


def stored(config: Config) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(record_file(config).read_text())
    return record


def test_the_models_of_the_runs_are_downloaded_and_folders_are_not(config: Config) -> None:
    prefetch(config, hub := Hub("c1"))
    assert hub.asked == [ModelEntry(path="org/name")]
    assert stored(config)["models"] == [{"path": "org/name", "revision": None, "commit": "c1"}]


def test_checkpoints_of_methods_are_downloaded_too(values: dict[str, Any]) -> None:
    wanted = [("org/fuser", "abc"), ("org/name", None), ("org/ranker", None)]
    assert hub_models(blended(values)) == [
        ModelEntry(path=path, revision=revision) for path, revision in wanted
    ]


def test_code_and_pickled_weights_are_wanted_where_an_entry_of_the_model_says_so(
    values: dict[str, Any],
) -> None:
    same = values["models"]["hub"]
    values["models"]["coded"] = same | {"trust_remote_code": True}
    values["models"]["pickled"] = same | {"allow_pickle": True}
    plain = ModelEntry(path="org/name", revision="abc")
    coded = plain.model_copy(update={"trust_remote_code": True})
    assert hub_models(parse_config(values)) == [plain]
    values["runs"]["coded"] = {"method": "single", "models": ["coded"]}
    assert hub_models(parse_config(values)) == [coded]
    values["runs"]["pickled"] = {"method": "single", "models": ["pickled"]}
    assert hub_models(parse_config(values)) == [coded.model_copy(update={"allow_pickle": True})]


def test_weights_are_left_out_where_all_runs_of_a_model_use_its_server(
    values: dict[str, Any],
) -> None:
    url = "http://node7:8000"
    values["models"]["hub"]["server"] = url
    assert hub_models(parse_config(values)) == [
        ModelEntry(path="org/name", revision="abc", server=url)
    ]
    values["runs"]["loaded"] = {"method": "single", "models": ["hub"], "served": False}
    assert hub_models(parse_config(values)) == [ModelEntry(path="org/name", revision="abc")]


def test_jobs_are_planned_with_the_recorded_commits(values: dict[str, Any]) -> None:
    config = blended(values)
    prefetch(config, Hub("c1"))
    pinned = Plan.of(values).config
    assert pinned.models["hub"].revision == "c1"
    assert pinned.models["left"].revision is None
    assert pinned.runs["both"].options["ranker_revision"] == "c1"
    assert pinned.runs["both"].options["fuser_revision"] == "abc"
    values["models"]["hub"]["revision"] = "c1"
    assert Plan.of(values).digests("qa", "far") == Plan(pinned).digests("qa", "far")


def test_data_sets_and_the_sentencepiece_model_are_fetched_and_recorded(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "test.jsonl").write_text('{"question": "q?", "answer": "a"}\n' * 3)
    source = {"dataset": str(data), "split": "test"}
    values["benchmarks"]["qa"].update(source=source, scorer="translation", shards=1)
    monkeypatch.setattr("adafuse.workflow.prefetch.require_model", lambda expected: "5a")
    config = parse_config(values)
    prefetch(config, Hub("c1"))
    (dataset,) = stored(config)["datasets"]
    assert (dataset["dataset"], dataset["revision"]) == (str(data), None)
    assert len(Path(dataset["file"]).read_text().splitlines()) == 3
    assert stored(config)["spm_sha256"] == "5a"


def test_without_a_record_nothing_is_pinned(config: Config) -> None:
    assert with_commits(config) is config


def test_a_model_stays_at_its_commit_until_the_record_is_deleted(config: Config) -> None:
    prefetch(config, Hub("c1"))
    before = record_file(config).read_text()
    again = Hub("c2")
    prefetch(with_commits(config), again)
    assert again.asked == [ModelEntry(path="org/name", revision="c1")], (
        "it is only completed, at its commit"
    )
    assert record_file(config).read_text() == before
    record_file(config).unlink()
    prefetch(with_commits(config), Hub("c2"))
    assert with_commits(config).models["hub"].revision == "c2"


def test_a_revision_that_the_user_changes_is_another_model(values: dict[str, Any]) -> None:
    values["models"]["hub"]["revision"] = None
    prefetch(parse_config(values), Hub("c1"))
    values["models"]["hub"]["revision"] = "v2"
    assert with_commits(parse_config(values)).models["hub"].revision == "v2"


def test_a_folder_with_the_name_of_a_model_that_was_downloaded_gets_no_commit(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefetch(config, Hub("c1"))
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert with_commits(config) is config


def test_nothing_is_recorded_where_all_downloads_fail(config: Config) -> None:
    with pytest.raises(UserError, match=r"1 of 1 could not be fetched.*no network"):
        prefetch(config, failing("org/name"))
    assert not record_file(config).exists()


def failing(path: str) -> Callable[[ModelEntry], Path]:
    hub = Hub("c1")

    def download(model: ModelEntry) -> Path:
        if model.path == path:
            raise UserError("no network")
        return hub(model)

    return download


def test_what_fails_is_named_and_all_else_is_fetched_and_recorded(values: dict[str, Any]) -> None:
    config = blended(values)
    with pytest.raises(UserError, match=r"1 of 3 could not be fetched.*no network"):
        prefetch(config, failing("org/name"))
    assert [each["path"] for each in stored(config)["models"]] == ["org/fuser", "org/ranker"]
    prefetch(with_commits(config), again := Hub("c2"))
    assert len(again.asked) == 3, "the others are completed"
    commits = {each["path"]: each["commit"] for each in stored(config)["models"]}
    assert commits == {"org/fuser": "abc", "org/ranker": "c1", "org/name": "c2"}


def test_planning_to_prefetch_fetches_nothing_and_starts_without_it(
    values: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/test.jsonl").write_text('{"question": "q?", "answer": "a"}\n')
    source = {"dataset": str(tmp_path / "data"), "split": "test"}
    values["benchmarks"]["qa"].update(source=source, shards=1)
    plan = Plan.of(values, fetches=False)
    with pytest.raises(
        UserError, match=r"data set of qa \(.*\) is missing; run `snakemake prefetch`"
    ):
        plan.start()
    plan.start(prefetches=True)
    assert plan.layout.config.is_file()
    assert not Path(plan.config.results, "sources").exists()


def test_what_is_closed_or_unpinned_is_named_first_and_a_token_opens_it(
    values: dict[str, Any], tmp_path: Path
) -> None:
    values["models"] |= {
        "hub": {"path": "org/llama"},
        "gated": {"path": "org/gated"},
        "gone": {"path": "org/gone"},
    }
    values["runs"] = {
        name: {"method": "single", "models": [name]} for name in ("hub", "gated", "gone")
    }
    source = {"dataset": "facebook/flores", "split": "devtest"}
    values["benchmarks"] = {"qa": {**values["benchmarks"]["qa"], "source": source}}
    config, log = tmp_path / "config.json", tmp_path / "log"
    config.write_text(json.dumps(values))
    models = {f"models/org/{name}": Path(toy_path("llama")) for name in ("llama", "gated")}
    with standing_hub(models, frozenset({"models/org/gated"})) as hub:
        environment = {**os.environ, **hub.environment(tmp_path / "cache"), "HF_TOKEN": ""}
        step = ["step", "prefetch", "--config", str(config), "--log", str(log)]
        command = [sys.executable, "-m", "adafuse", *step]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        page = f"{hub.url}/org/gated"
        told = [line.split(" ", 3)[-1] for line in log.read_text().splitlines()]
        environment["HF_TOKEN"] = TOKEN
        again = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == again.returncode == 2
    assert told[:2] == [
        f"cannot be fetched: model 'org/gated' is gated; accept its terms at {page} and set"
        " HF_TOKEN",
        "cannot be fetched: model 'org/gone' is not on the hub, or is private; check its name and"
        " HF_TOKEN",
    ]
    assert told[2].startswith("cannot be fetched: benchmarks.qa: hub dataset 'facebook/flores' has")
    listed = ["missing: model org/llama (no revision)", "1 of 1: model org/llama (no revision)"]
    assert told[3:5] == listed
    assert "error: 3 of 4 could not be fetched" in done.stderr and "Traceback" not in done.stderr
    assert "error: 2 of 4 could not be fetched" in again.stderr
    record = json.loads(Path(values["results"], "prefetched.json").read_text())
    assert [each["path"] for each in record["models"]] == ["org/llama", "org/gated"]
    assert TOKEN not in log.read_text() + again.stderr


@pytest.mark.parametrize("text", ["", "[]", '{"models": [{}]}', '{"models": 3}'])
def test_a_damaged_record_is_one_sentence(config: Config, text: str) -> None:
    record_file(config).parent.mkdir(parents=True, exist_ok=True)
    record_file(config).write_text(text)
    with pytest.raises(UserError, match="is not a record of commits; delete it"):
        with_commits(config)
