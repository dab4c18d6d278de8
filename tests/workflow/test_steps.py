"""`adafuse step ...` as a person uses it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from adafuse.benchmarks.shards import write_shard
from adafuse.cli.steps import app
from adafuse.errors import UserError
from adafuse.workflow.plan import Plan
from adafuse.workflow.snakemake import inputs_of
from adafuse.workflow.stamps import DAMAGED, stamp_path
from tests.support.small_workflow import SmallWorkflow, configuration

from .conftest import ROOT, Workplace


def test_the_report_shows_the_table_and_where_everything_is(
    finished: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished.folder)
    done = CliRunner().invoke(app, ["summary", "config.yaml"])
    assert done.exit_code == 0
    assert "n = 9" in done.stdout
    for path in ("results/tables/main.csv", "results/scores", "results/traces", "results/logs"):
        assert path in done.stdout
        assert Path(path).exists()


def test_scores_of_another_configuration_are_not_shown_without_a_word(
    finished: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished.folder)
    assert "not up to date" not in CliRunner().invoke(app, ["summary", "config.yaml"]).stderr
    config = yaml.safe_load(Path("config.yaml").read_text())
    config["runs"]["adafuse"]["options"] = {"tau": 0.123}
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump(config))
    done = CliRunner().invoke(app, ["summary", str(other)])
    assert "adafuse.parquet' is not up to date, nor " in done.stderr


def test_a_report_without_results_is_one_sentence(
    finished: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["summary", str(finished.folder / "config.yaml")])
    assert isinstance(done.exception, UserError)
    assert "has no scores" in str(done.exception)


def test_a_killed_job_says_what_to_change() -> None:
    killed, failed = (CliRunner().invoke(app, ["ended", status]) for status in ("137", "2"))
    assert killed.exit_code == failed.exit_code == 0
    assert "lower batch_size, set it to auto, or ask the cluster for more" in killed.stderr
    assert failed.stderr == ""


@pytest.mark.parametrize(
    ("step", "read"),
    [
        (["words-per-round"], "traces/qa/adafuse.parquet"),
        (["compare-runs"], "scores/strict/qa/adafuse.json"),
        (["compare-runs"], "scores/strict/qa/adafuse.outcomes.parquet"),
        (["report"], "tables/comparison.csv"),
        (["examples", "--benchmark=qa"], "benchmarks/qa/rows.jsonl"),
        (["examples", "--benchmark=qa"], "scores/strict/qa/adafuse.outcomes.parquet"),
        (["examples", "--benchmark=qa"], "traces/qa/adafuse.parquet"),
        (["score", "--protocol=strict", "--benchmark=qa", "--run=adafuse"],
         "traces/qa/adafuse.parquet"),
        (["merge", "--benchmark=qa", "--run=adafuse"],
         "traces/qa/adafuse/0.parquet"),
    ],
)  # fmt: skip
def test_no_step_reads_what_was_damaged_since_it_was_planned(
    place: Workplace, monkeypatch: pytest.MonkeyPatch, step: list[str], read: str
) -> None:
    monkeypatch.chdir(place.folder)
    path = Path("results", read)
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    done = CliRunner().invoke(app, [*step, "--config=results/config.json"])
    assert isinstance(done.exception, UserError), done.output
    assert f"'results/{read}' is not what the workflow wrote" in str(done.exception)
    assert json.loads(stamp_path(path).read_text())["digest"] == DAMAGED


@pytest.mark.soak
def test_a_step_reads_nothing_but_what_it_says_it_reads(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each runs in a results folder of its inputs alone; else what is gone is not made again."""
    monkeypatch.chdir(place.folder)
    shown = {"title": "t", "kind": "scores", "benchmarks": ["qa"], "runs": ["llama", "adafuse"]}
    kinds = ("scores", "paired", "words_per_round", "runtime", "frontier")
    figures = {f"all_{kind}": {**shown, "kind": kind} for kind in kinds}
    plan = Plan.of(place.config() | {"experiments": figures, "targets": ["experiments", "report"]})
    whole, results = Path("whole"), Path(plan.config.results)
    plan.store_config()
    results.rename(whole)
    for job in plan.all_jobs():
        if job.step == "decode":
            continue
        results.mkdir()
        for path in (plan.layout.config, *plan.inputs(job)):
            for each in (path, stamp_path(path)):
                if (kept := whole / each.relative_to(results)).exists():
                    each.parent.mkdir(parents=True, exist_ok=True)
                    (shutil.copytree if kept.is_dir() else shutil.copy)(kept, each)
        done = CliRunner().invoke(app, plan.command(job)[2:])
        assert done.exit_code == 0, (job, done.output, done.exception)
        shutil.copytree(results, whole, dirs_exist_ok=True)
        shutil.rmtree(results)


STEPS = """
import json, sys
from adafuse.cli.main import app
for arguments in json.loads(sys.argv[1]):
    app(["step", *arguments], standalone_mode=False)
assert not {"torch", "transformers"} & sys.modules.keys()
"""


@pytest.mark.soak
def test_steps_that_load_no_model_load_no_torch(place: Workplace) -> None:
    benchmark = ["--config=results/config.json", "--benchmark=qa"]
    run = [*benchmark, "--run=adafuse"]
    commands = [
        ["prepare", *benchmark],
        ["shard", *benchmark, "--shard=0"],
        ["merge", *run],
        ["score", *run, "--protocol=strict"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", STEPS, json.dumps(commands)],
        cwd=place.folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_decode_job_is_followed_in_fourteen_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import adafuse.ensemble  # noqa: F401 - what it imports takes long while it is followed

    SmallWorkflow.made(tmp_path, 1)
    monkeypatch.chdir(tmp_path)
    plan = Plan.of(configuration(1))
    plan.store_config()
    write_shard(plan.layout.shard_rows("qa", 0), plan.prepared("qa").shard(0))
    cell = {"benchmark": "qa", "run": "adafuse", "shard": "0"}
    job, reached = plan.job("decode", cell), set[str]()
    sys.setprofile(lambda frame, *_: reached.add(frame.f_code.co_filename))
    try:
        inputs_of(SimpleNamespace(is_main_process=False), plan, "decode")(cell)
        plan.resources("qa", "adafuse", 0)
        done = CliRunner().invoke(app, plan.command(job)[2:])
    finally:
        sys.setprofile(None)
    assert [path.is_file() for path in plan.outputs(job)] == [True], done.output
    rooms = [ROOT / "adafuse" / name for name in ("workflow", "cli")]
    files = {str(path.relative_to(ROOT)) for path in map(Path, reached) if path.parent in rooms}
    planned = ("snakemake", "plan", "steps", "layout", "digest", "jobs", "serving")
    ran = {"adafuse/cli/steps.py", "adafuse/workflow/decode.py", "adafuse/workflow/stamps.py"}
    ran |= {"adafuse/workflow/together.py"}
    assert files == {f"adafuse/workflow/{name}.py" for name in planned} | ran
    rules = ("workflow/Snakefile", "workflow/rules/common.smk", "workflow/rules/decode.smk")
    assert len({*files, *rules}) == 14
