"""`adafuse status` on results in every state."""

import json
import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from adafuse.cli.main import app
from adafuse.cli.steps import STAMPED, ended
from adafuse.errors import UserError
from adafuse.storage import journal
from adafuse.storage.files import write_text
from adafuse.storage.journal import Journal, only_writer
from adafuse.storage.parquet import write_rows
from adafuse.workflow.decode import TRACE_FIELDS
from adafuse.workflow.plan import Plan
from adafuse.workflow.stamps import write_stamp
from adafuse.workflow.status import last_error
from adafuse.workflow.steps import Job

ROOT = Path(__file__).parents[2]


class Results:
    """A results folder whose decode jobs are put into states by hand."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.plan = Plan.of(values)
        self.plan.store_config()
        self.folder = Path(self.plan.config.results)

    def ids(self, shard: int) -> list[str]:
        return [row.id for row in self.plan.prepared("qa").shard(shard)]

    def trace(self, run: str, shard: int) -> Path:
        return self.folder / f"traces/qa/{run}/{shard}.parquet"

    def log(self, run: str, shard: int, text: str) -> Path:
        path = self.folder / f"logs/decode/qa/{run}/{shard}.log"
        write_text(path, text)
        return path

    def finish(self, run: str, shard: int, digest: str | None = None) -> None:
        wanted = digest or self.plan.digest("qa", run, shard)
        self.write(run, shard, {"digest": wanted})

    def write(
        self, run: str, shard: int, metadata: dict[str, Any], fields: Any = TRACE_FIELDS,
        rows: Any = (),
    ) -> None:  # fmt: skip
        write_rows(self.trace(run, shard), fields, rows, metadata)
        write_stamp(self.trace(run, shard), metadata["digest"])

    def journal(self, run: str, shard: int, rows: int) -> Path:
        path = self.trace(run, shard).with_suffix(".journal")
        with Journal(path, self.plan.row_digests("qa", run, shard)) as journal:
            for name in self.ids(shard)[:rows]:
                journal.append(name, {})
        return path

    def asked(self, *options: str, status: int) -> dict[str, Any]:
        done = CliRunner().invoke(app, ["status", str(self.folder), "--json", *options])
        assert done.exit_code == status, done.output
        told = json.loads(done.stdout)
        names = {(each["run"], each["shard"]): each for each in told["shards"]}
        assert len(names) == len(told["shards"]) == 6
        others = {name: told[name] for name in ("orphans", "outdated", "versions", "progress")}
        return {**names, "steps": told["failed_steps"], **others}


@pytest.fixture
def results(values: dict[str, Any]) -> Results:
    return Results(values)


def test_each_state_is_told_with_its_rows_and_its_reason(results: Results) -> None:
    results.finish("left", 0)
    results.finish("left", 1, digest="0123")
    path = results.journal("both", 0, rows=2)
    results.journal("both", 1, rows=1)
    log = results.log("far", 0, "2026-11-21 12:00:00,1 INFO loading\nerror: no such model\n\n")
    with only_writer(path):
        told = results.asked(status=1)
    states = {job: each["state"] for job, each in told.items() if isinstance(job, tuple)}
    assert states == {
        ("left", 0): "done", ("left", 1): "stale", ("both", 0): "running", ("both", 1): "stopped",
        ("far", 0): "failed", ("far", 1): "waiting",
    }  # fmt: skip
    assert told["left", 0]["rows"] == told["left", 0]["of"] == len(results.ids(0))
    assert told["both", 0]["rows"] == 2 and told["both", 1]["rows"] == 1
    assert f"process {os.getpid()} on " in told["both", 0]["detail"]
    assert (told["far", 0]["detail"], told["far", 0]["log"]) == ("error: no such model", str(log))


def test_the_exit_status_says_whether_all_is_there(results: Results) -> None:
    results.asked(status=3)
    for run in results.plan.config.decoded_runs:
        for shard in (0, 1):
            results.finish(run, shard)
    results.asked(status=0)
    log = results.folder / "logs/merge/qa/left.log"
    write_text(log, "error: row 'a' is missing\n")
    assert results.asked(status=1)["steps"] == [{"error": "error: row 'a' is missing",
                                                 "log": str(log)}]  # fmt: skip


SNAKEMAKE_LOG = """\
[Sun Nov 22 12:11:28 2026]
Error in rule decode:
    message: SLURM sbatch failed. The error message was 'sbatch: error: invalid partition: nowhere
sbatch: error: Batch job submission failed'.
    sbatch call:
        sbatch --parsable -p nowhere
For further error details see the cluster/cloud log and the log files of the involved rule(s).
    jobid: 3
    input: {results}/benchmarks/qa/shards/1.jsonl
    output: {results}/traces/qa/far/1.parquet
    log: {results}/logs/decode/qa/far/1.log (check log file(s) for error details)
Logfile {results}/logs/decode/qa/far/1.log not found.
[Sun Nov 22 12:11:29 2026]
Error in rule compare:
    message: None
    jobid: 7
    input: {results}/scores/strict/qa/far.json, {results}/scores/strict/qa/left.json
    output: {results}/tables/main.csv, {results}/tables/main.md
    log: {results}/logs/compare.log (check log file(s) for error details)
"""


def test_what_snakemake_says_has_failed_has_failed_whatever_its_log_says(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = Path(".snakemake/log/2026-11-22T121128.1.snakemake.log")
    write_text(said, SNAKEMAKE_LOG.format(results=results.folder))
    log = results.folder / "logs/compare.log"
    write_text(log, "INFO reading\nwhat comes last need not look like an error\n")
    told = results.asked(status=1)
    assert told["steps"] == [{"error": "rule compare failed", "log": str(log)}]
    far = told["far", 1]
    assert (far["state"], far["log"]) == ("failed", str(said))
    assert far["detail"] == (
        "SLURM sbatch failed. The error message was 'sbatch: error: invalid partition: nowhere"
        " sbatch: error: Batch job submission failed'."
    )

    # A later attempt made both; another Snakemake has no failures.
    for name in ("main.csv", "main.md"):
        write_text(results.folder / "tables" / name, "")
    results.finish("far", 1)
    told = results.asked(status=3)
    assert (told["far", 1]["state"], told["steps"]) == ("done", [])
    (results.folder / "tables/main.csv").unlink()
    write_text(said.with_name("2026-11-22T121300.1.snakemake.log"), "Building DAG of jobs...\n")
    assert results.asked(status=3)["steps"] == []


def test_an_error_is_shown_as_the_log_has_it(results: Results) -> None:
    results.log("far", 1, "error: scorer.py:100: no [gold] answer\n")
    done = CliRunner().invoke(app, ["status", str(results.folder)], env={"COLUMNS": "200"})
    assert "scorer.py:100: no [gold] answer (" in done.stdout


def test_a_job_that_a_signal_ended_is_stopped_and_not_failed(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    monkeypatch.chdir(tmp_path)
    said = Path(".snakemake/log/2026-11-22T121128.1.snakemake.log")
    write_text(said, SNAKEMAKE_LOG.format(results=results.folder).replace("rule compare", "x"))
    results.journal("far", 1, rows=1)
    assert results.asked(status=1)["far", 1]["state"] == "failed"
    with caplog.at_level("INFO", logger="adafuse"):
        ended(128 + signal.SIGTERM)
    results.log("far", 1, f"KeyboardInterrupt\n2026-11-22 12:11:28,1 INFO {caplog.messages[-1]}\n")
    assert results.asked(status=3)["far", 1]["state"] == "stopped"


def test_failures_in_a_results_folder_within_this_one_are_not_its_own(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = Path(".snakemake/log/2026-11-22T121128.1.snakemake.log")
    write_text(said, SNAKEMAKE_LOG.format(results=f"{results.folder}/other"))
    assert results.asked(status=3)["steps"] == []


def test_a_configuration_is_compared_with_its_own_results(
    results: Results, values: dict[str, Any], tmp_path: Path
) -> None:
    results.finish("left", 0)
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({**values, "results": str(results.folder)}))
    done = CliRunner().invoke(app, ["status", "--json", "--config", str(tmp_path / "own.yaml")])
    assert "done" in {shard["state"] for shard in json.loads(done.stdout)["shards"]}


def test_an_error_of_an_earlier_attempt_is_none(results: Results) -> None:
    results.log("left", 0, "error: no room\n2026-11-21 12:00:00,1 INFO 1 of 5: r1 (eos)\n")
    assert results.asked(status=3)["left", 0]["state"] == "waiting"


def test_a_torn_trace_is_stale(results: Results) -> None:
    results.finish("left", 0)
    results.trace("left", 0).write_bytes(b"PAR1")
    told = results.asked(status=3)["left", 0]
    assert (told["state"], told["detail"]) == ("stale", "torn or foreign")


def test_a_trace_that_was_changed_is_stale(results: Results) -> None:
    results.finish("left", 0)
    with results.trace("left", 0).open("r+b") as file:
        file.seek(4)
        file.write(b"\0")
    told = results.asked(status=3)["left", 0]
    assert (told["state"], told["detail"].split(",")[0]) == ("stale", "changed")


def test_results_can_be_compared_with_another_configuration(
    results: Results, values: dict[str, Any], tmp_path: Path
) -> None:
    for run in results.plan.config.decoded_runs:
        results.finish(run, 0)
    values["runs"]["both"]["options"]["tau"] = 0.1
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(values))
    told = results.asked("--config", str(tmp_path / "other.yaml"), status=3)
    assert told["both", 0]["state"] == "stale" and told["left", 0]["state"] == "done"


def test_the_table_counts_shards_and_tells_what_is_wrong(results: Results) -> None:
    results.finish("left", 0)
    results.log("far", 0, "ValueError: [bold]no[/bold]\n")
    done = CliRunner().invoke(app, ["status", str(results.folder)])
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    (left,) = (line for line in lines if " left " in line)
    assert [cell.strip() for cell in left.split("│")[1:-1]][2] == "1"
    (failed,) = (line for line in lines if line.startswith("failed: qa/far/0"))
    assert failed.endswith("ValueError: [bold]no[/bold] "
                           f"({results.folder}/logs/decode/qa/far/0.log)")  # fmt: skip


def test_a_folder_without_results_is_one_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert isinstance(done.exception, UserError)
    assert "name a results folder of the workflow, or run snakemake" in str(done.exception)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("error: no room", True),
        ("torch.OutOfMemoryError: CUDA", True),
        ("KeyboardInterrupt", True),
        ("Aborted!", True),
        ("2026-11-21 12:00:00,123 ERROR the job was killed", True),
        ("2026-11-21 12:00:00,123 INFO 1 of 2: ERROR (eos)", False),
        ("2026-11-21 12:00:00,123 WARNING dropping", False),
        ("", False),
    ],
)
def test_the_last_line_of_a_log_tells_whether_it_ended_in_an_error(
    tmp_path: Path, line: str, told: bool
) -> None:
    (tmp_path / "log").write_text(f"before\n{line}\n\n")
    assert (last_error(tmp_path / "log") is not None) is told


def test_status_loads_no_torch(results: Results) -> None:
    results.finish("left", 0)
    code = (
        "import sys; from adafuse.cli.main import app;"
        f" app(['status', {str(results.folder)!r}], standalone_mode=False);"
        " assert not {'torch', 'datasets', 'transformers'} & sys.modules.keys()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_another_configuration_asks_for_the_commits_that_were_fetched(
    results: Results, values: dict[str, Any], tmp_path: Path
) -> None:
    model = values["models"]["hub"]
    pin = {**model, "commit": "c" * 40}
    write_text(results.folder / "prefetched.json", json.dumps({"models": [pin]}))
    fetched = Results(values)
    assert fetched.plan.digest("qa", "far", 0) != results.plan.digest("qa", "far", 0)
    fetched.finish("far", 0)
    (tmp_path / "same.yaml").write_text(yaml.safe_dump(values))
    told = fetched.asked("--config", str(tmp_path / "same.yaml"), status=3)
    assert told["far", 0]["state"] == "done"


def test_only_what_targets_ask_for_counts_unless_all_is_asked_for(
    values: dict[str, Any],
) -> None:
    values["main"] = {"runs": ["left"]}
    results = Results(values)
    for shard in (0, 1):
        results.finish("left", shard)
    done = CliRunner().invoke(app, ["status", str(results.folder)])
    assert done.exit_code == 0
    assert done.stdout.startswith(
        "2 decode jobs: 2 done; 12 of 12 rows; 4 others are not needed by any target (--all shows"
    )
    assert " both " not in done.stdout
    results.asked("--all", status=3)


def test_names_are_whole_in_a_narrow_terminal(values: dict[str, Any]) -> None:
    names = [f"{'a_rather_long_name_of_a_run_' * 2}{end}" for end in ("one", "two")]
    values["runs"] = dict.fromkeys(names, values["runs"]["left"])
    results = Results(values)
    results.journal(names[0], 0, rows=1)
    done = CliRunner(env={"COLUMNS": "60"}).invoke(app, ["status", str(results.folder)])
    rows = [line.split("│")[2].strip() for line in done.stdout.splitlines() if "│" in line]
    assert "".join(rows) == "".join(names)


def test_several_versions_are_listed(results: Results) -> None:
    for run, torch in (("left", "2.13.0"), ("both", "2.14.0")):
        unknown = [{"file": "rows.parquet", "decoded": [{"versions": None}]}]
        versions = {"torch": torch, "bitsandbytes": None}
        shards = [{"versions": versions, "reused_from": unknown}, {"versions": versions}]
        path = results.folder / f"traces/qa/{run}.parquet"
        write_rows(path, TRACE_FIELDS, [], {"digest": "0123", "shards": shards})
    done = CliRunner().invoke(app, ["status", str(results.folder)])
    assert "decoded with several versions, which reruns nothing:" in done.stdout
    assert "  2 shards with torch 2.13.0\n  2 shards with torch 2.14.0\n" in done.stdout
    assert results.asked(status=3)["versions"] == {"torch 2.13.0": 2, "torch 2.14.0": 2}


def test_the_version_of_a_plug_in_is_none_of_the_versions(results: Results) -> None:
    for run, more in (("left", {}), ("both", {"mine": "1.0, 0123"})):
        shards = [{"versions": {"torch": "2.13.0", **more}}]
        path = results.folder / f"traces/qa/{run}.parquet"
        write_rows(path, TRACE_FIELDS, [], {"digest": "0123", "shards": shards})
    assert results.asked(status=3)["versions"] == {"torch 2.13.0": 2}


@pytest.mark.parametrize(
    ("error", "says"),
    [("no room for it. Take less.\nAnd more", "no room for it."), (None, "no reason")],
)
def test_rows_that_failed_are_told_with_the_first_sentence_of_the_first(
    values: dict[str, Any], error: str | None, says: str
) -> None:
    values["decode"]["max_error_share"] = 1
    results = Results(values)
    rows = [
        {"id": name, "shard": 0, "error": said, "stop_reason": reason}
        for name, said, reason in zip(
            results.ids(0), (None, error, "another"), ("eos", "error", "error"), strict=False
        )
    ]
    fields = [field for field in TRACE_FIELDS if field.name in rows[0]]
    digest = results.plan.digest("qa", "left", 0)
    metadata = {"digest": digest, "failed": 2, "rows": len(rows)}
    results.write("left", 0, metadata, fields, rows)
    told = results.asked(status=3)["left", 0]
    name = results.ids(0)[1]
    assert told["state"] == "done"
    assert told["detail"] == f"2 failed, the first, {name!r}, with: {says}"
    done = CliRunner().invoke(app, ["status", str(results.folder)])
    assert f"done: qa/left/0: {told['of']} of {told['of']} rows, 2 failed, the first" in done.stdout


def test_the_pace_is_that_of_the_jobs_that_run(results: Results) -> None:
    assert results.asked(status=3)["progress"]["hours_left"] is None
    now = datetime.now().replace(microsecond=0)
    node = now.astimezone(timezone(timedelta(hours=9)))  # as the clock of a node may be set
    times = [f"{node - timedelta(minutes=m):{STAMPED[1]}}" for m in (40, 30, 20)]
    lines = [
        f"{times[0]} INFO both on qa: {len(results.ids(0)) - 1} of 6 rows to do, 1 were dec",
        f"{times[1]} INFO 2 of 6: r1 (eos)",
        f"{times[2]} INFO 3 of 6: r2 (eos)",
    ]
    earlier = [
        f"{(now - timedelta(hours=9)).isoformat(sep=' ')},1 INFO both on qa: 6 of 6 rows to do, 0",
        f"{(now - timedelta(hours=6)).isoformat(sep=' ')},1 INFO 5 of 6: of an earlier attempt",
    ]
    results.log("both", 0, "\n".join([*earlier, *lines]))
    results.log("left", 1, "\n".join([*earlier, *lines]))
    place = {"place": {"gpus": ["H100"] * 2}, "rows": 6, "resumed": 5}
    spent = {"started": "2026-01-01T10:00:00+00:00", "finished": "2026-01-01T10:30:00+00:00"}
    digest = {"digest": results.plan.digest("qa", "left", 1)}
    results.write("left", 1, digest | place | spent)
    with only_writer(results.journal("both", 0, rows=2)):
        told = results.asked(status=3)
        done = CliRunner().invoke(app, ["status", str(results.folder)])
    assert told["both", 0]["rows"] == 3, "with the one that was decoded before"
    pace = told["progress"]
    assert (pace["running"], pace["gpu_hours"]) == (1, 7.0), "6 by the attempt before the trace"
    assert pace["rows_per_minute"] == pytest.approx(2 / 20)
    assert "running: 1 job with 0.1 rows a minute; time left: unknown; GPU hours so" in done.stdout


def test_gpus_that_a_job_sees_and_does_not_ask_for_cost_no_hours(values: dict[str, Any]) -> None:
    values["decode"] |= {"gpu": 1, "device": "auto"}
    results = Results(values)
    spent = {"started": "2026-01-01T10:00:00+00:00", "finished": "2026-01-01T10:30:00+00:00"}
    for run, gpus in (("left", ["H100"] * 8), ("far", [])):
        digest = {"digest": results.plan.digest("qa", run, 0)}
        results.write(run, 0, digest | spent | {"place": {"gpus": gpus}, "rows": 6})
    assert results.asked(status=3)["progress"]["gpu_hours"] == 0.5


def test_the_time_left_is_that_of_jobs_that_were_measured(values: dict[str, Any]) -> None:
    results = Results(values)
    place = {"place": {"gpus": []}, "rows": len(results.ids(0))}
    spent = {"started": "2026-01-01T10:00:00+00:00", "finished": "2026-01-01T11:00:00+00:00"}
    for run in ("left", "both", "far"):
        digest = {"digest": results.plan.digest("qa", run, 0)}
        results.write(run, 0, digest | place | spent)
    of_a_row = 1 / len(results.ids(0))
    left = results.asked(status=3)["progress"]["hours_left"]
    assert left == pytest.approx(3 * len(results.ids(1)) * of_a_row)


def test_what_the_configuration_does_not_make_is_an_orphan(
    results: Results, caplog: pytest.LogCaptureFixture
) -> None:
    results.finish("left", 0)
    for name in ("tables/main.csv", "tables/old.csv", "traces/qa/gone.parquet", "mine.txt"):
        write_text(results.folder / name, "x")
    orphans = [str(results.folder / name) for name in ("tables/old.csv", "traces/qa/gone.parquet")]
    told = results.asked(status=3)
    assert told["orphans"] == orphans
    assert told["outdated"] == [str(results.folder / "tables/main.csv")]
    assert f"orphan: {orphans[0]}: not made by this configuration\n" in (
        CliRunner().invoke(app, ["status", str(results.folder)]).stdout
    )
    write_text(results.folder / "orphans/tables/old.csv", "an earlier one")
    results.plan.start()
    assert f"{orphans[0]} is not made by this configuration: moved to" in caplog.text
    assert not Path(orphans[0]).exists() and Path(orphans[1]).exists()
    assert (results.folder / "orphans/tables/old.csv").read_text() == "an earlier one"
    assert (results.folder / "orphans/tables/old.2.csv").read_text() == "x"
    assert (results.folder / "tables/main.csv").exists() and (results.folder / "mine.txt").exists()


def test_what_changed_between_the_plan_and_the_lock_is_refused(
    results: Results, values: dict[str, Any]
) -> None:
    score = results.folder / "scores/strict/qa/left.json"
    write_text(score, "{}")
    job = Job.of("score", "strict", "qa", "left")
    write_stamp(score, results.plan.key(job))
    assert results.plan.is_fresh(job)
    write_text(score, "[]")
    write_stamp(score, "another plan")
    with pytest.raises(UserError, match=r"left.json' changed while this was planned; run again"):
        results.plan.start()


def test_a_folder_is_one_snakemake_s(
    results: Results, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = partial(journal.only_writer, patience=0.1)
    monkeypatch.setattr("adafuse.workflow.plan.only_writer", impatient)
    results.plan.start()
    other = Plan.of(values | {"note": "another"})
    with pytest.raises(UserError, match="wait for that Snakemake or stop it"):
        other.start()
    assert "another" not in results.plan.layout.config.read_text()
