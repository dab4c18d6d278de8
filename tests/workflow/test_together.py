"""Decode jobs that share models, with models that only echo their prompts."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from adafuse.benchmarks.shards import PreparedRow
from adafuse.errors import UserError
from adafuse.records.result import Result
from adafuse.storage.journal import journal_path, only_writer
from adafuse.storage.parquet import read_metadata, read_rows
from adafuse.workflow import together
from adafuse.workflow.decode import Answers, merge_shards
from adafuse.workflow.jobs import DecodeJob
from adafuse.workflow.plan import Plan
from adafuse.workflow.stamps import is_ready, ready_path, write_stamp
from adafuse.workflow.status import shard_status
from adafuse.workflow.steps import Job
from adafuse.workflow.together import Shard, decode_together, shared_models, tell


class Machine:
    """Does decode jobs as their processes would, and counts what they load and decode."""

    def __init__(self, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plan = plan
        self.loads: list[tuple[str, ...]] = []
        self.decoded: list[tuple[str, str]] = []
        self.failing = ""
        self.broken = ""
        monkeypatch.setattr(together, "load_ensemble", self._load)
        monkeypatch.setattr(together, "ensemble_decoder", self._decode)
        for job in plan.all_jobs():
            if job.step == "shard":
                self.prepare(job)

    def prepare(self, job: Job) -> None:
        """Do a `shard` job."""
        from adafuse.benchmarks.shards import write_shard

        (rows,) = self.plan.outputs(job)
        write_shard(rows, self.plan.shard(job.values[0], int(job.values[1])))
        write_stamp(rows, self.plan.key(job))

    def run(self, *shard: str) -> dict[str, Any]:
        """Do a decode job as `adafuse step decode` does; return what its trace says of itself."""
        job = Job.of("decode", *shard)
        trace = self.trace(*shard)
        trace.unlink(missing_ok=True)  # as Snakemake does
        decode_together(self.plan, shard, self.plan.key(job))  # type: ignore[arg-type]
        write_stamp(trace, self.plan.key(job))
        return read_metadata(trace)

    def trace(self, *shard: str) -> Path:
        return self.plan.layout.shard_trace(*shard)

    def ready(self, *shard: str) -> bool:
        return is_ready(self.trace(*shard), self.plan.key(Job.of("decode", *shard)))

    def _load(self, job: DecodeJob) -> object:
        self.loads.append(tuple(model.path for model in job.models))
        return object()

    def _decode(
        self, job: DecodeJob, rows: Sequence[PreparedRow], answers: Answers | None, models: object
    ) -> Iterator[tuple[int, Result]]:
        assert models is not None
        if job.run == self.failing:
            raise UserError("no memory")
        for number, row in enumerate(rows):
            self.decoded.append((job.run, row.id))
            counts = (1,) * len(job.models)
            if row.id == self.broken:
                yield number, Result("", "error", (), counts, counts, counts, 0.5, "too long")
            else:
                text = f"{job.run}: {row.prompt}"
                yield number, Result(text, "stop", (), counts, counts, counts, 0.5)


@pytest.fixture
def machine(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Two runs of the same two models, one of one model; two shards each."""
    both = values["runs"]["both"]
    values["runs"] = {
        "left": values["runs"]["left"],
        "both": both,
        "wide": both | {"options": {"branching": 3}},
    }
    for name in [name for name in os.environ if name.startswith("ADAFUSE_TOGETHER")]:
        monkeypatch.delenv(name)
    return Machine(Plan.of(values), monkeypatch)


def shards(plan: Plan) -> list[Shard]:
    return [job.values for job in plan.all_jobs() if job.step == "decode"]  # type: ignore[misc]


def test_jobs_that_share_models_load_them_once_and_have_the_traces_of_jobs_that_do_not(
    machine: Machine, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = machine.plan
    tell(plan, shards(plan), limited=True)
    told = {shard: machine.run(*shard) for shard in shards(plan)}
    assert Counter(len(each) for each in machine.loads) == {1: 1, 2: 1}
    assert len({*machine.decoded}) == len(machine.decoded) == 3 * 12
    alone = Machine(Plan.of(values | {"results": str(tmp_path / "alone")}), monkeypatch)
    for shard, known in told.items():
        apart = alone.run(*shard)
        assert [known[name] for name in ("digest", "resumed", "reused")] == [apart["digest"], 0, 0]
        assert read_rows(machine.trace(*shard)) == read_rows(alone.trace(*shard))
    assert len(alone.loads) == len(told)


def test_only_jobs_that_the_start_runs_are_decoded_ahead(machine: Machine) -> None:
    tell(machine.plan, [("qa", "both", "0"), ("qa", "wide", "1")], limited=True)
    machine.run("qa", "both", "0")
    assert {run for run, _ in machine.decoded} == {"both", "wide"}
    assert [shard for shard in shards(machine.plan) if machine.ready(*shard)] == [
        ("qa", "both", "0"),
        ("qa", "wide", "1"),
    ]


def test_what_waits_for_its_rows_or_has_them_all_is_not_decoded_ahead(machine: Machine) -> None:
    plan = machine.plan
    tell(plan, shards(plan), limited=True)
    plan.layout.shard_rows("qa", 1).unlink()
    machine.run("qa", "both", "0")
    assert not machine.ready("qa", "both", "1")
    machine.prepare(Job.of("shard", "qa", 1))
    before = len(machine.decoded)
    machine.run("qa", "wide", "0")  # was ready: loads nothing, and so decodes for no other
    assert len(machine.decoded) == before


@pytest.mark.parametrize(
    "change",
    [
        {"benchmarks": {"qa": {"timed": True}}},
        {"runs": {"both": {"weights": [1, 2]}}},
        {"runs": {"both": {"method": "rerank", "options": {}}}},
        {"models": {"right": {"server": "http://node1:8000"}}},
    ],
)
def test_timed_and_served_jobs_and_those_of_other_models_or_answers_share_none(
    values: dict[str, Any], change: dict[str, Any]
) -> None:
    values["runs"]["wide"] = values["runs"]["both"] | {"options": {"branching": 3}}
    values["runs"]["right"] = {"method": "single", "models": ["right"]}
    same = Plan.of(values)
    assert shared_models(same, "qa", "both") == shared_models(same, "qa", "wide") is not None
    for section, entries in change.items():
        for name, changed in entries.items():
            values[section][name] = values[section][name] | changed
    plan = Plan.of(values)
    found = shared_models(plan, "qa", "both")
    assert found is None or found != shared_models(plan, "qa", "wide")


def test_a_shard_that_another_process_decodes_is_waited_for_after_all_others(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = machine.plan
    tell(plan, shards(plan), limited=True)
    lock = only_writer(journal_path(machine.trace("qa", "both", "0")))
    lock.__enter__()
    own = together._decode

    def decode(plan: Plan, shard: Shard, *rest: Any, **how: Any) -> None:
        if shard == ("qa", "both", "0"):  # the other process ends when there is no more to do
            assert how["patience"] == -1
            assert machine.ready("qa", "both", "1") and machine.ready("qa", "wide", "0")
            lock.__exit__(None, None, None)
        own(plan, shard, *rest, **how)

    monkeypatch.setattr(together, "_decode", decode)
    machine.run("qa", "both", "0")
    assert len(machine.loads) == 1


def test_nothing_of_shards_that_are_being_decoded_or_ready_is_an_orphan(machine: Machine) -> None:
    tell(machine.plan, shards(machine.plan), limited=True)
    machine.run("qa", "both", "0")
    with only_writer(journal_path(machine.trace("qa", "left", "0"))):
        assert machine.plan.orphans() == []


def test_an_error_in_the_shard_of_another_job_is_left_to_that_job(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    plan = machine.plan
    machine.failing = "wide"
    tell(plan, shards(plan), limited=True)
    machine.run("qa", "both", "0")
    assert machine.ready("qa", "both", "1")
    assert "left to its own job: no memory" in caplog.text
    with pytest.raises(UserError, match="no memory"):
        machine.run("qa", "wide", "0")


def test_a_job_that_is_stopped_while_it_decodes_for_others_has_its_trace_at_the_next_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    tell(machine.plan, shards(machine.plan), limited=True)
    monkeypatch.setattr(together, "_help", stopped)
    with pytest.raises(KeyboardInterrupt):
        machine.run("qa", "both", "0")
    before = len(machine.decoded)
    assert machine.run("qa", "both", "0")["resumed"] == 0
    assert len(machine.decoded) == before


def test_what_is_ready_stays_until_the_run_is_merged(machine: Machine) -> None:
    plan = machine.plan
    tell(plan, shards(plan), limited=True)
    for number in "01":
        machine.run("qa", "both", number)
        assert machine.ready("qa", "both", number)
    folder = ready_path(machine.trace("qa", "both", "0")).parent
    files = [machine.trace("qa", "both", number) for number in "01"]
    rows = [plan.layout.shard_rows("qa", number) for number in "01"]
    merge_shards(files, plan.digests("qa", "both"), rows, plan.layout.trace("qa", "both"))
    assert not folder.exists()
    assert machine.ready("qa", "wide", "0")


def test_what_is_ready_with_too_many_failed_rows_is_decoded_again(
    machine: Machine, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    values["decode"]["max_error_share"] = 0.5
    failing = Machine(Plan.of(values), monkeypatch)
    failing.broken = failing.plan.shard("qa", 0)[0].id
    tell(failing.plan, shards(failing.plan), limited=True)
    failing.run("qa", "both", "1")
    assert failing.ready("qa", "wide", "0")
    values["decode"]["max_error_share"] = 0
    mended = Machine(Plan.of(values), monkeypatch)
    assert mended.run("qa", "wide", "0")["failed"] == 0
    assert ("wide", failing.broken) in mended.decoded


@pytest.mark.parametrize("limited", [True, False])
def test_a_process_for_which_the_workflow_waits_ends_after_some_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    monkeypatch.setattr(together, "LEAST", 0.0)
    monkeypatch.setattr(together, "TIMES", 0)
    tell(machine.plan, shards(machine.plan), limited=limited)
    machine.run("qa", "both", "0")
    assert machine.ready("qa", "both", "1") is not limited


def test_what_is_ready_is_taken_only_by_the_job_that_it_was_decoded_for(
    machine: Machine, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(machine.plan, shards(machine.plan), limited=True)
    machine.run("qa", "both", "0")
    values["runs"]["both"] = values["runs"]["both"] | {"options": {"tau": 0.2}}
    changed = Machine(Plan.of(values), monkeypatch)
    assert changed.run("qa", "both", "1")["job"]["options"]["tau"] == 0.2
    assert {run for run, _ in changed.decoded} == {"both"}
    damaged = ready_path(machine.trace("qa", "wide", "0"))
    damaged.write_bytes(damaged.read_bytes()[:-10])
    assert changed.run("qa", "wide", "0")["resumed"] == len(changed.plan.shard("qa", 0))


def test_more_jobs_than_a_variable_holds_are_told_in_part(machine: Machine) -> None:
    tell(machine.plan, [("qa", "both", str(n)) for n in range(20_000)], limited=True)
    (told,) = (value for name, value in os.environ.items() if name.startswith("ADAFUSE_TOGETHER"))
    assert 1000 < len(json.loads(told)[1]) < 20_000
    assert len(told) < 131_072


def test_a_shard_decoded_ahead_is_done_and_its_messages_are_in_the_log_of_its_job(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "adafuse")
    tell(machine.plan, shards(machine.plan), limited=True)
    machine.run("qa", "both", "0")
    assert shard_status(machine.plan, {}, "qa", "wide", 0).state == "done"
    log = machine.plan.layout.log("decode", "qa", "wide", "0")
    assert " rows to do" in log.read_text()
    assert log.with_name("0.log.attempts").samefile(log)
