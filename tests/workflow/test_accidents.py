"""Full and read-only disks, files of others, two at once: one sentence each, nothing is lost."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from adafuse.cli.main import app
from adafuse.storage.journal import only_writer
from adafuse.storage.parquet import read_metadata, read_rows
from tests.support.decode_jobs import DONE, DecodeJobs
from tests.support.small_workflow import RUNS, SmallWorkflow, decode_command, flushed
from tests.support.traces import assert_same, decoded

pytestmark = pytest.mark.soak

Mount = Callable[[str], None]


@pytest.fixture(scope="module")
def jobs() -> Iterator[DecodeJobs]:
    with DecodeJobs.started() as jobs:
        yield jobs


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Make `results` a disk of its own, with options such as `size=16k`; again to change them."""
    folder = tmp_path / "results"
    folder.mkdir()

    def mounted(options: str) -> None:
        again = "remount," if folder.is_mount() else ""
        command = ["mount", "-t", "tmpfs", "-o", again + options, "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True)
        until = time.monotonic() + 30
        while done.returncode and again and time.monotonic() < until:
            time.sleep(0.5)  # a process that has ended may not have closed its log yet
            done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 or not again, done.stderr
        if done.returncode:
            pytest.skip(f"no disk of its own can be mounted here: {done.stderr.strip()}")

    yield mounted
    if folder.is_mount():
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, forked_python: str) -> SmallWorkflow:
    """A workflow that nothing happened to; tests must not change it."""
    workflow = SmallWorkflow.made(tmp_path_factory.mktemp("finished"), 1, forked_python)
    status, said = workflow.run()
    assert status == 0, said
    return workflow


@pytest.fixture
def workflow(finished: SmallWorkflow, tmp_path: Path) -> SmallWorkflow:
    """A finished workflow of the test's own."""
    shutil.copytree(finished.folder, tmp_path / "copy", symlinks=True)
    return SmallWorkflow(tmp_path / "copy", finished.python)


def lose(workflow: SmallWorkflow, *runs: str) -> None:
    """Delete the merged traces of some runs."""
    for run in runs:
        (workflow.results / f"traces/qa/{run}.parquet").unlink()


def errors(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("error: ")]


@pytest.mark.parametrize("size", ["8k", "28k", "48k"])
def test_a_full_disk_is_one_sentence_and_the_next_job_goes_on(
    jobs: DecodeJobs, finished: SmallWorkflow, tmp_path: Path, mount: Mount, size: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(SmallWorkflow.made(tmp_path, 1).folder)
    mount(f"size={size}")
    command, out = decode_command()
    log = tmp_path / "log"
    ended = jobs.run(command, tmp_path, log)
    said = log.read_text().splitlines()[-1]
    assert ended.status == 2 and not out.exists()
    assert said.startswith("error: ") and "No space left on device" in said
    assert "Traceback" not in log.read_text()
    kept = flushed(tmp_path / "results")
    mount("ro")
    assert jobs.run(command, tmp_path, log).status == 2
    assert "(Read-only file system); make room or give" in errors(log.read_text())[0]
    mount("rw,size=16m")
    assert jobs.run(command, tmp_path, log).status == 0, log.read_text()
    rows = {("adafuse", name) for name in DONE.findall(log.read_text())}
    assert not rows & kept and flushed(tmp_path / "results") >= rows | kept
    assert_same(decoded(out), finished.traces()[1])


def test_a_workflow_on_a_full_disk_says_so_and_goes_on_with_room(
    finished: SmallWorkflow, tmp_path: Path, mount: Mount
) -> None:
    workflow = SmallWorkflow.made(tmp_path, 1, finished.python)
    mount("size=64k")
    status, said = workflow.run()
    assert status != 0 and "No space left on device" in said
    mount("ro")
    status, said = workflow.run("--dry-run")
    assert status == 0, said
    status, said = workflow.run()
    assert status != 0
    (sentence,) = errors(said)
    assert sentence.startswith("error: results folder 'results' cannot be written because of '")
    mount("rw,size=16m")
    status, said = workflow.run()
    assert status == 0, said
    assert_same(workflow.traces(), finished.traces())


def flipped(content: bytes) -> bytes:
    """Change a byte of a row group, which Parquet itself does not notice."""
    return content[:200] + bytes([content[200] ^ 1]) + content[201:]


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        pytest.param(lambda _: b"PAR1", False, id="torn, merged"),
        pytest.param(lambda _: b"id,text\n1,a\n", True, id="foreign, not merged"),
        pytest.param(lambda content: content[:-40], False, id="cut, merged"),
        pytest.param(flipped, True, id="a byte, not merged"),
    ],
)
def test_a_damaged_shard_is_made_again_where_it_is_needed(
    workflow: SmallWorkflow, finished: SmallWorkflow, damage: Callable[[bytes], bytes], lost: bool
) -> None:
    shard = workflow.results / "traces/qa/adafuse/0.parquet"
    shard.write_bytes(damage(shard.read_bytes()))
    if lost:
        lose(workflow, "adafuse")
    status, said = workflow.run()
    assert status == 0, said
    assert_same(workflow.traces(), finished.traces())
    again = "16 of 16 rows to do" if lost else "0 of 16 rows to do, 16 were decoded before"
    assert again in workflow.log("adafuse")


def test_files_dated_in_the_future_stop_nothing(
    workflow: SmallWorkflow, finished: SmallWorkflow
) -> None:
    future = time.time() + 1e8
    lose(workflow, "adafuse")
    (workflow.results / "benchmarks/qa/shards/0.jsonl").unlink()
    traces = workflow.results / "traces/qa"
    for path in (workflow.folder / "qa.jsonl", traces / "llama.parquet", traces / "llama/0.parquet",
                 traces / "adafuse/0.parquet"):  # fmt: skip
        os.utime(path, (future, future))
    status, said = workflow.run()
    assert status == 0, said
    assert_same(workflow.traces(), finished.traces())
    assert (traces / "adafuse/0.parquet").stat().st_mtime < future
    assert (workflow.folder / "qa.jsonl").stat().st_mtime > time.time(), "a user's file stays"


@pytest.mark.parametrize("records", [True, False], ids=["with records", "without records"])
def test_a_trace_of_another_run_in_its_place_is_made_again(
    workflow: SmallWorkflow, finished: SmallWorkflow, records: bool
) -> None:
    traces = workflow.results / "traces/qa"
    shutil.copy2(traces / "llama.parquet", traces / "adafuse.parquet")
    if not records:
        shutil.rmtree(workflow.folder / ".snakemake")
    status, said = workflow.run()
    assert status == 0, said
    assert_same(workflow.traces(), finished.traces())


def test_another_file_among_the_traces_is_left_alone(
    workflow: SmallWorkflow, finished: SmallWorkflow
) -> None:
    folder = workflow.results / "traces/qa/adafuse"
    shutil.copy(folder / "0.parquet", folder / "1.parquet")
    (folder / "notes.txt").write_text("mine")
    lose(workflow, *RUNS)
    status, said = workflow.run()
    assert status == 0, said
    assert workflow.traces() == finished.traces()
    assert (folder / "notes.txt").exists()


def test_lines_that_no_job_wrote_are_dropped_and_it_is_said(
    workflow: SmallWorkflow, finished: SmallWorkflow
) -> None:
    shard = workflow.results / "traces/qa/adafuse/0.parquet"
    digest = read_rows(shard, ["digest"])[0]["digest"]
    row = json.dumps({"digest": digest, "row": {}}) + "\n"
    shard.with_suffix(".journal").write_text(row * 2 + "[" * 100_000 + "\n")
    shard.unlink()
    lose(workflow, "adafuse")
    status, said = workflow.run()
    assert status == 0, said
    assert "dropping damaged lines (3)\n" in workflow.log("adafuse")
    shards = read_metadata(workflow.results / "traces/qa/adafuse.parquet")["shards"]
    assert shards[0]["resumed"] == 0
    assert_same(workflow.traces(), finished.traces())


def test_a_second_configuration_is_refused_while_the_first_one_runs(
    workflow: SmallWorkflow, finished: SmallWorkflow, tmp_path: Path
) -> None:
    """Snakemake's own lock is of a folder that it runs in, and of the outputs of its jobs."""
    workflow.clear()
    first = SmallWorkflow(workflow.folder).start(said="first")  # not forked: it is stopped below
    second = SmallWorkflow.made(tmp_path / "second", 1, finished.python)
    config = yaml.safe_load((second.folder / "config.yaml").read_text())
    config |= {"note": "the second", "results": str(workflow.results)}
    config["runs"]["adafuse"]["options"]["tau"] = 0.1
    (second.folder / "config.yaml").write_text(yaml.safe_dump(config))
    until = time.monotonic() + 120
    while not list(workflow.results.rglob("*.journal")):
        assert first.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGSTOP)
    status = second.start(targets=[]).wait()
    os.killpg(first.pid, signal.SIGCONT)
    assert status != 0
    (sentence,) = errors((second.folder / "stderr").read_text())
    assert "config.json' is being written by process" in sentence
    assert "wait for that Snakemake or stop it" in sentence
    assert first.wait() == 0, (workflow.folder / "first").read_text()
    assert "the second" not in (workflow.results / "config.json").read_text()
    assert_same(workflow.traces(), finished.traces())


def test_a_second_snakemake_is_refused_and_the_first_one_goes_on(
    workflow: SmallWorkflow, finished: SmallWorkflow
) -> None:
    workflow.clear()
    first = SmallWorkflow(workflow.folder).start(said="first")  # not forked: it is stopped below
    until = time.monotonic() + 120
    while not list(workflow.results.rglob("*.journal")):
        assert first.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGSTOP)  # or it ends before the second one has started
    status = workflow.start().wait()
    os.killpg(first.pid, signal.SIGCONT)
    assert status != 0
    assert "Directory cannot be locked" in (workflow.folder / "stderr").read_text()
    assert first.wait() == 0, (workflow.folder / "first").read_text()
    assert_same(workflow.traces(), finished.traces())


def test_a_second_job_on_a_shard_is_refused_without_snakemake_s_lock(
    workflow: SmallWorkflow, finished: SmallWorkflow
) -> None:
    shard = workflow.results / "traces/qa/adafuse/0.parquet"
    shard.unlink()
    lose(workflow, "adafuse")
    with only_writer(shard.with_suffix(".journal")):
        status, said = workflow.run("--nolock")
    (sentence,) = errors(workflow.log("adafuse"))
    assert status != 0 and sentence in said
    assert "0.journal' is being written by process" in sentence
    status, said = workflow.run()
    assert status == 0, said
    assert_same(workflow.traces(), finished.traces())


def test_lost_records_of_snakemake_run_nothing_that_is_done(workflow: SmallWorkflow) -> None:
    shutil.rmtree(workflow.folder / ".snakemake")
    status, said = workflow.run()
    assert status == 0 and "Nothing to be done" in said


def told_status(workflow: SmallWorkflow, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The exit status and the output of `adafuse status`."""
    monkeypatch.chdir(workflow.folder)
    done = CliRunner().invoke(app, ["status", "results"])
    return done.exit_code, done.stdout


def test_rows_that_cannot_be_decoded_are_rows_and_too_many_fail_the_job(
    workflow: SmallWorkflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompts of two rows are longer than the context of a model."""
    workflow.clear()
    long = '{{"id": "long-{}", "question": "' + "why " * 5000 + '", "answer": "x"}}\n'
    with (workflow.folder / "qa.jsonl").open("a") as file:
        file.write(long.format(1) + long.format(2))
    status, said = workflow.run()
    (sentence,) = errors(workflow.log("llama"))
    assert status != 0 and sentence in said
    assert sentence.startswith("error: 2 of 18 rows failed, of ")
    assert " decoded so far, more than decode.max_error_share: 0.1 allows; " in sentence
    assert "the first one, 'long-1', says: the prompt has " in sentence
    exit_status, output = told_status(workflow, monkeypatch)
    assert exit_status == 1
    assert "failed: qa/llama/0: " in output and f" of 18 rows, {sentence} (" in output
    kept, before = flushed(workflow.results), workflow.log("llama")
    config = yaml.safe_load((workflow.folder / "config.yaml").read_text())
    config["decode"]["max_error_share"] = 0.2
    (workflow.folder / "config.yaml").write_text(yaml.safe_dump(config))
    status, said = workflow.run()
    assert status == 0, said
    after = workflow.log("llama")
    assert after.startswith(before)
    rows = {("llama", name) for name in DONE.findall(after[len(before) :])}
    assert rows and not rows & kept
    assert told_status(workflow, monkeypatch)[0] == 0
    failed = [row for row in workflow.traces()[1] if row["stop_reason"] == "error"]
    assert [row["id"] for row in failed] == ["long-1", "long-2"]
    assert all("ValueError" in row["traceback"] for row in failed)
