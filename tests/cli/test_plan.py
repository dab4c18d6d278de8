"""What `adafuse plan` says; tests/workflow/test_forecast.py has which jobs there are."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from adafuse.cli.main import app
from adafuse.models.hub import OnHub
from adafuse.workflow import snakemake
from adafuse.workflow.plan import Plan
from adafuse.workflow.snakemake import PlannedJob
from adafuse.workflow.steps import Job
from tests.conftest import toy_path
from tests.support.configuration import values

__all__ = ["values"]


@pytest.fixture
def planned(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A configuration all of whose decode jobs are to run, by models of the toy world."""
    for name, model in (("left", "mistral"), ("right", "llama")):
        values["models"][name]["path"] = toy_path(model)
    values["benchmarks"]["qa"]["shards"] = 1

    def jobs(*_: Any) -> list[PlannedJob]:
        plan = Plan.of(values)
        snakemake.PLANS[:] = [plan]
        asked = {"gpu": 0, "mem_mb": 7000, "runtime": 30}
        runs = plan.config.decoded_runs
        return [PlannedJob(plan, Job.of("decode", "qa", run, 0), asked) for run in runs]

    monkeypatch.setattr(snakemake, "planned_jobs", jobs)
    return values


def said(*options: str) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["plan", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["plan", str(tmp_path)])
    assert str(done.exception) == (
        f"configuration {str(tmp_path)!r} is a folder; name files of the workflow"
    )


def test_a_folder_without_the_workflow_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text("models: {}")
    done = CliRunner().invoke(app, ["plan", "my.yaml"])
    assert str(done.exception).startswith("there is no Snakefile here; run it in a clone")


def test_a_pilot_is_taken_once_and_tells_where_and_what_it_used(planned: dict[str, Any]) -> None:
    assert {each["likely"] for each in json.loads(said("--json"))["decoding"]} == {None}
    told = json.loads(said("--pilot", "5", "--json"))
    likely = {each["run"]: (each["rows"], each["likely"]) for each in told["decoding"]}
    assert likely["left"] == likely["both"] == (0, 0.0), "all rows are in it: two batches"
    assert likely["far"][0] == 12 and likely["far"][1] > 0, "by those of the other runs"
    assert [each["run"] for each in told["pilots"]] == ["left", "both"]
    (reason,) = told["no_pilot"]
    assert "'org/name'" in reason and told["no_pilot"][reason] == ["qa/far"]
    file = Path(planned["results"], "traces/qa/left/.pilot/rows.json")
    written = file.stat().st_mtime_ns
    words = said("--pilot", "5")
    assert file.stat().st_mtime_ns == written, "it is measured already"
    assert "pilots: 24 rows of 2 pairs of a benchmark and a run, on " in words
    assert "no pilot of qa/far: " in words and "disk for traces, with merged ones: about" in words


def test_downloads_are_told_with_their_size_and_who_may_have_them(
    planned: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = "model org/name: not on this machine: `snakemake prefetch` downloads it; download: "
    words = said()
    assert f"{absent}size not known, as the hub cannot be asked (HF_HUB_OFFLINE is set)\n" in words
    assert f"model {toy_path('llama')}: on this machine, 0.00506 GB in memory\n" in words
    on_hub = OnHub(16_000_000_000, "gated, and open to your token")
    monkeypatch.setattr("adafuse.models.hub.model_on_hub", lambda model: on_hub)
    assert f"{absent}16 GB, gated, and open to your token\n" in said()


@pytest.mark.soak
def test_what_several_benchmarks_lack_is_told_once(planned: dict[str, Any]) -> None:
    for part in ("train", "test"):
        hub = {"dataset": "org/rows", "split": part, "revision": "0" * 40}
        planned["benchmarks"][part] = {**planned["benchmarks"]["qa"], "source": hub}
    lines = said().splitlines()
    assert sum(line.startswith("missing: ") for line in lines) == 1
    assert sum("org/rows" in line for line in lines) == 2, "its download, and why it is missing"
    assert len(json.loads(said("--json"))["missing"]) == 2
