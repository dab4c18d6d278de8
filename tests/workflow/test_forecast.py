"""What the jobs that are left would take, and why rows are decoded again."""

import copy
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from rich.console import Console

from adafuse.cli.plan import _cells, _print
from adafuse.storage.parquet import write_rows
from adafuse.version import ENGINE_VERSION
from adafuse.workflow.decode import TRACE_FIELDS
from adafuse.workflow.forecast import Forecast, Measured, forecast, rerun_reason
from adafuse.workflow.jobs import least_seconds, loaded, model_bytes
from adafuse.workflow.plan import Plan
from adafuse.workflow.steps import Job

from .conftest import ROOT, Workplace

Values = dict[str, Any]
FIELDS = [field for field in TRACE_FIELDS if field.name in ("id", "shard", "prompt_sha256")]


def decoded(values: Values, shard: int = 0, seconds: int = 60, **other: Any) -> Plan:
    """Leave a trace of the run `both` where the plan of a configuration has it."""
    plan = Plan.of(copy.deepcopy(values))
    rows = plan.shard("qa", shard)
    metadata = {
        "digest": plan.digest("qa", "both", shard),
        "job": plan.decode_job("qa", "both").record(),
        "versions": {"engine": ENGINE_VERSION},
        "rows": len(rows),
        "started": "2026-01-01T10:00:00+00:00",
        "finished": f"2026-01-01T10:{seconds // 60:02}:{seconds % 60:02}+00:00",
        "place": {"gpus": []},
    }
    kept = [{"id": r.id, "shard": shard, "prompt_sha256": r.prompt_sha256} for r in rows]
    path = plan.layout.shard_trace("qa", "both", shard)
    write_rows(path, FIELDS, kept, metadata | other)
    return plan


def options(values: Values) -> None:
    values["runs"]["both"]["options"] = {"tau": 0.9, "branching": 2}


def length(values: Values) -> None:
    values["benchmarks"]["qa"]["max_new_tokens"] = 16


def weights(values: Values) -> None:
    Path(values["models"]["left"]["path"], "model.safetensors").write_bytes(b"others")


def another_model(values: Values) -> None:
    right = Path(values["models"]["right"]["path"])
    shutil.copytree(right, right.with_name("third"))
    right.with_name("third").joinpath("model.safetensors").write_bytes(b"third")
    values["models"]["right"]["path"] = str(right.with_name("third"))


def question(values: Values) -> None:
    path = Path(values["benchmarks"]["qa"]["source"]["file"])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    first = Plan.of(copy.deepcopy(values)).shard("qa", 0)[0].id
    for row in rows:
        row["question"] += "?" * (row["id"] == first)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda values: None, "its trace is gone, or too many of its rows failed"),
        (options, "option branching 1 -> 2; option tau 0.7 -> 0.9"),
        (length, "max_new_tokens 8 -> 16"),
        (weights, "model {left} has other files"),
        (another_model, "model {right} -> {third}"),
        (question, "1 of {rows} rows changed, first '{first}'"),
    ],
)
def test_a_reason_names_what_was_changed(
    values: Values, tmp_path: Path, change: Callable[[Values], None], said: str
) -> None:
    before = decoded(values)
    rows = before.shard("qa", 0)
    change(values)
    names = {name: tmp_path / name for name in ("left", "right", "third")}
    wanted = said.format(**names, rows=len(rows), first=rows[0].id)
    plan = Plan.of(values)
    assert rerun_reason(plan, "qa", "both", 0) == wanted
    assert rerun_reason(plan, "qa", "both", 1) == "not decoded yet"


def test_another_engine_is_a_reason(values: Values) -> None:
    decoded(values, digest="other", versions={"engine": ENGINE_VERSION - 1})
    said = f"engine version {ENGINE_VERSION - 1} -> {ENGINE_VERSION}"
    assert rerun_reason(Plan.of(values), "qa", "both", 0) == said


def test_a_shard_takes_as_long_as_one_that_was_measured(values: Values) -> None:
    plan = decoded(values, shard=0, seconds=90)
    measured = Measured(plan)
    asked = {"gpu": 0, "mem_mb": 7000, "runtime": 30}
    left = forecast(plan, Job.of("decode", "qa", "both", 1), asked, measured)
    job, rows = plan.decode_job("qa", "both"), len(plan.shard("qa", 1))
    least = least_seconds(job, [model_bytes(m) for m in loaded(job)], rows, 0) / 3600
    assert left.rows == rows and left.high == 0.5 and left.low == pytest.approx(least)
    of_a_row = 90 / len(plan.shard("qa", 0)) / 3600
    assert left.likely == pytest.approx(of_a_row * rows)
    on_gpu = forecast(plan, Job.of("decode", "qa", "both", 1), asked | {"gpu": 2}, measured)
    assert on_gpu.likely is None, "a CPU says nothing of a GPU"


def test_a_job_is_measured_by_the_rows_that_it_decoded_unless_most_were_there(
    values: Values,
) -> None:
    whole = Measured(decoded(values))
    rows = len(Plan.of(values).shard("qa", 0))
    (ratio,) = whole.ratios["qa", "both", False]
    some = Measured(decoded(values, resumed=1, reused=1))
    assert some.ratios["qa", "both", False] == [pytest.approx(ratio * rows / (rows - 2))]
    assert not Measured(decoded(values, resumed=rows // 2, reused=1)).ratios


def test_a_trace_of_something_else_is_not_measured_and_no_reason_by_itself(values: Values) -> None:
    plan = Plan.of(values)
    path = plan.layout.shard_trace("qa", "both", 0)
    write_rows(path, FIELDS, [], {"rows": 5})
    assert not Measured(plan).ratios
    assert rerun_reason(plan, "qa", "both", 0) == "of another configuration"


def test_hours_on_gpus_and_without_one_are_not_added_up() -> None:
    on_gpu = Forecast("decode", "qa", "a", 0, 5, 2, 9000, 1.0, 2.0, 3.0, "not decoded yet")
    without = replace(on_gpu, gpus=0, likely=None)
    assert _cells([on_gpu, on_gpu]) == ("2", "10", "4.0", "8.0", "12.0")
    assert _cells([without]) == ("1", "5", "1.0", "-", "3.0")
    console = Console(width=80, record=True, file=StringIO())
    with patch("rich.console.Console", lambda **_: console):
        _print(Counter(decode=2), [on_gpu, without])
    told = console.export_text()
    gpu, cpu = told.split("Hours of jobs without a GPU")
    assert "GPU hours" in gpu and re.search(r"2\.0 .* 4\.0 .* 6\.0", gpu)
    assert re.search(r"1\.0 .* - .* 3\.0", cpu)


def test_a_plan_is_what_snakemake_would_run(place: Workplace) -> None:
    (place.folder / "workflow").symlink_to(ROOT / "workflow")
    place.configure(lambda config: config["runs"]["adafuse"]["options"].update(tau=0.9))
    files = {path: path.stat().st_mtime_ns for path in place.folder.rglob("*") if path.is_file()}
    command = [Path(sys.executable).with_name("adafuse"), "plan", "config.yaml", "--json"]
    done = subprocess.run(command, cwd=place.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert Counter(told["steps"]) == place.plan().jobs - Counter(["all"])
    assert {(each["benchmark"], each["why"]) for each in told["decoding"]} == {
        ("qa", "option tau 0.7 -> 0.9"),
        ("mt", "option tau 0.7 -> 0.9"),
    }
    assert all(each["low"] <= each["likely"] < each["high"] for each in told["decoding"])
    now = {path for path in files if path.stat().st_mtime_ns != files[path]}
    assert not {path for path in now if ".snakemake" not in path.parts}


def test_a_refusal_is_that_of_the_workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    (tmp_path / "mine.yaml").write_text("runz: {}\n")
    monkeypatch.chdir(tmp_path)
    command = [Path(sys.executable).with_name("adafuse"), "plan", "mine.yaml"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and not done.stdout
    _, sentence = done.stderr.splitlines()  # after the profile that Snakemake uses
    assert sentence.startswith("error: config: unknown key 'runz'; known are: ")
    assert sentence.endswith("did you mean 'runs'?")
