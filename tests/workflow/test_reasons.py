"""Why jobs run again, in words; test_incremental asserts that a dry run says it."""

import copy
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from adafuse.benchmarks.shards import PreparedRow, write_prepared
from adafuse.version import ENGINE_VERSION
from adafuse.workflow.plan import Plan
from adafuse.workflow.reasons import reason_to_repeat, rerun_reason
from adafuse.workflow.stamps import write_stamp
from adafuse.workflow.steps import Job
from tests.support.configuration import values, weight_file
from tests.workflow.test_forecast import Values, decoded

__all__ = ["values"]


def options(values: Values) -> None:
    values["runs"]["both"]["options"] = {"tau": 0.9, "branching": 2}


def length(values: Values) -> None:
    values["benchmarks"]["qa"]["max_new_tokens"] = 16


def weights(values: Values) -> None:
    Path(values["models"]["left"]["path"], "model.safetensors").write_bytes(weight_file("others"))


def another_model(values: Values) -> None:
    right = Path(values["models"]["right"]["path"])
    shutil.copytree(right, right.with_name("third"))
    right.with_name("third").joinpath("model.safetensors").write_bytes(weight_file("third"))
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


def test_rows_are_compared_with_those_that_were_prepared(values: Values) -> None:
    plan = Plan.of(copy.deepcopy(values))
    job, rows = Job.of("prepare", "qa"), plan.prepared("qa").rows
    (path,) = plan.outputs(job)
    path.parent.mkdir(parents=True)

    def reason(kept: Sequence[PreparedRow]) -> str:
        write_prepared(path, kept)
        write_stamp(path, "of other rows")
        return reason_to_repeat(plan, job)

    other = [replace(row, answers=("another",)) for row in rows]
    assert reason([other[0], *rows[1:]]) == f"gold answer of {rows[0].id!r}"
    assert reason(other) == f"gold answer of {rows[0].id!r} and of {len(rows) - 1} more rows"
    assert reason(rows[1:]) == f"1 of {len(rows)} rows new, first {rows[0].id!r}"
    path.write_text("torn {")
    assert (
        reason_to_repeat(plan, job)
        == f"{str(path)!r} was changed, damaged or copied from elsewhere"
    )
    score = Job.of("score", "strict", "qa", "both")
    assert reason_to_repeat(plan, score) == reason_to_repeat(plan, job), "which it reads"
    path.unlink()
    assert reason_to_repeat(plan, score) == "its settings or what it reads were changed"
