"""What the jobs that are left would take, and why rows are decoded again."""

import copy
import json
import re
import subprocess
import sys
from collections import Counter
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
from adafuse.workflow.forecast import Forecast, Measured, forecast
from adafuse.workflow.jobs import least_seconds, loaded, model_bytes
from adafuse.workflow.plan import Plan
from adafuse.workflow.reasons import rerun_reason
from adafuse.workflow.stamps import write_stamp
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


def test_rows_that_any_trace_has_are_not_left_to_decode(values: Values) -> None:
    plan, asked = Plan.of(copy.deepcopy(values)), {"gpu": 0, "mem_mb": 7000, "runtime": 30}
    fields = [field for field in TRACE_FIELDS if field.name in ("id", "digest", "error")]
    for shard in plan.shards("qa"):
        digests = plan.row_digests("qa", "both", shard)
        rows = [{"id": name, "digest": digest, "error": None} for name, digest in digests.items()]
        rows[0]["error"] = "no memory"
        path = plan.layout.shard_trace("qa", "both", shard)
        write_rows(path, fields, rows, {})
        write_stamp(path, "")
    values["benchmarks"]["qa"]["shards"] = 3
    dealt = Plan.of(values)
    measured = Measured(dealt)
    jobs = [Job.of("decode", "qa", "both", shard) for shard in dealt.shards("qa")]
    assert sum(forecast(dealt, job, asked, measured).rows for job in jobs) == 2, "that failed"
    values["benchmarks"]["qa"]["timed"] = True
    job, alone = jobs[0], Plan.of(values)
    assert forecast(alone, job, asked, Measured(alone)).rows == len(alone.shard("qa", 0))


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
