"""Killed at any moment: a plain rerun gives the same rows, and decodes none of them twice."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import yaml

from adafuse.benchmarks.shards import write_shard
from adafuse.pipeline.plan import Plan
from adafuse.traces.table import read_metadata, read_rows
from tests.support.decode_jobs import DONE, DecodeJobs
from tests.support.traces import assert_same, decoded

from .conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
MOMENTS = 20
RUNS = ("llama", "adafuse")
ROWS = 16


def configuration(shards: int) -> dict:
    """A run of one model and one of two; rows that end one by one."""
    models = ROOT / "adafuse/toy/models"
    task = {
        "source": {"file": "qa.jsonl"},
        "prompt": "Question: {question}\nAnswer:",
        "max_new_tokens": 12,
        "metric": "squad",
        "shards": shards,
    }
    fused = {"method": "adafuse", "models": ["mistral", "llama"], "options": {"tau": 1.0}}
    return {
        "models": {name: {"path": str(models / name)} for name in ("mistral", "llama")},
        "benchmarks": {"qa": task},
        "runs": {"llama": {"method": "single", "models": ["llama"]}, "adafuse": fused},
        "decode": {"batch_size": 2, "device": "cpu", "gpu": 0},
    }


def made(folder: Path, shards: int) -> Path:
    """A folder with a configuration and its rows."""
    lines = (ROOT / "adafuse/toy/benchmarks/toy_qa.jsonl").read_text().splitlines()[:ROWS]
    (folder / "qa.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "config.yaml").write_text(yaml.safe_dump(configuration(shards), sort_keys=False))
    return folder


def flushed(results: Path) -> set[tuple[str, str]]:
    """Run and id of every row of which a whole line stands in a journal, or that has a trace."""
    found = set()
    for path in results.rglob("traces/qa/*/*"):
        if path.suffix == ".journal":
            lines = path.read_bytes().split(b"\n")[:-1]
            found |= {(path.parent.name, json.loads(line)["id"]) for line in lines}
        elif path.suffix == ".parquet" and not path.name.startswith("."):
            found |= {(path.parent.name, row["id"]) for row in read_rows(path, ["id"])}
    return found


@dataclass
class Watch:
    """Compares what an attempt decoded, by its logs, with what was flushed before it."""

    results: Path
    before: set[tuple[str, str]] = field(default_factory=set)
    logs: dict[Path, str] = field(default_factory=dict)

    def begin(self) -> None:
        self.before = flushed(self.results)
        self.logs = {path: path.read_text() for path in self.results.glob("logs/decode/qa/*/*.log")}

    def end(self) -> None:
        """Nothing flushed was decoded again or lost; all that was decoded is kept."""
        rows = self._decoded()
        assert len(rows) == len(set(rows))
        assert not self.before & set(rows)
        assert flushed(self.results) >= self.before | set(rows)

    def _decoded(self) -> list[tuple[str, str]]:
        found = []
        for path in self.results.glob("logs/decode/qa/*/*.log"):
            text = path.read_text().removeprefix(self.logs.get(path, ""))
            found += [(path.parent.name, name) for name in DONE.findall(text)]
        return found


@pytest.fixture(scope="module")
def jobs() -> Iterator[DecodeJobs]:
    with DecodeJobs.started() as jobs:
        yield jobs


def decode_command(out: Path) -> list[str]:
    """The command of a decode job in the current folder, whose files are made."""
    plan = Plan.of(configuration(1))
    plan.store_config()
    write_shard(Path("rows.jsonl"), plan.prepared("qa").shard(0))
    words = {
        "config": plan.config_file, "benchmark": "qa", "run": "adafuse", "shard": 0,
        "rows": "rows.jsonl", "digest": plan.digest("qa", "adafuse", 0), "out": out,
    }  # fmt: skip
    return ["step", "decode", *(f"--{name}={value}" for name, value in words.items())]


@pytest.mark.parametrize("sent", SIGNALS)
def test_a_killed_decode_job_goes_on_where_it_was(
    jobs: DecodeJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    monkeypatch.chdir(made(tmp_path, 1))
    results, log = tmp_path / "results", tmp_path / "job.log"
    out = results / "traces/qa/adafuse/0.parquet"
    command = decode_command(out)
    whole = jobs.run(command, tmp_path, log)
    assert whole.status == 0, log.read_text()
    wanted = decoded(out)
    shutil.rmtree(out.parent)
    rng, kills, resumed = random.Random(sent), 0, 0
    while kills < MOMENTS or not out.exists():
        before = flushed(results)
        moment = (sent, rng.uniform(0, whole.seconds)) if kills < MOMENTS else None
        ended = jobs.run(command, tmp_path, log, moment)
        kills += ended.status != 0
        rows = {("adafuse", name) for name in DONE.findall(log.read_text())}
        assert not before & rows, "a flushed row was decoded again"
        assert flushed(results) >= before | rows, "a row was lost"
        if ended.status == 0:
            assert_same(decoded(out), wanted)
            resumed += read_metadata(out)["resumed"] > 0
            if kills < MOMENTS:
                shutil.rmtree(out.parent)
    assert resumed


def wait_for_the_last_child(folder: Path) -> None:
    """Wait for the jobs of the fork server, which end a moment after their clients."""
    until = time.monotonic() + 30
    while any(_works_in(process, folder) for process in psutil.process_iter()):
        assert time.monotonic() < until
        time.sleep(0.05)


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return Path(process.cwd()) == folder and process.pid != os.getpid()
    except psutil.Error:
        return False


@dataclass(frozen=True)
class Whole:
    """The workflow up to its merged traces."""

    folder: Path

    def start(self) -> subprocess.Popen[bytes]:
        targets = [f"results/traces/qa/{run}.parquet" for run in RUNS]
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *targets, "--snakefile", str(ROOT / "Snakefile"),
             "--cores", "2", "--configfile", "config.yaml"],
            cwd=self.folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL, stderr=(self.folder / "stderr").open("wb"),
            start_new_session=True,
        )  # fmt: skip

    def kill(self, running: subprocess.Popen[bytes], sent: int) -> bool:
        """Send a signal to Snakemake and all its jobs; False if it had ended by itself."""
        if running.poll() is not None:
            return False
        os.killpg(running.pid, sent)
        return True

    def unlock(self) -> None:
        """What `snakemake --unlock` does, which it asks for after SIGKILL."""
        shutil.rmtree(self.folder / ".snakemake/locks", ignore_errors=True)

    def traces(self) -> list[list[dict]]:
        return [decoded(self.folder / f"results/traces/qa/{run}.parquet") for run in RUNS]

    def clear(self) -> None:
        for name in ("results", ".snakemake"):
            shutil.rmtree(self.folder / name, ignore_errors=True)


def test_a_killed_workflow_goes_on_where_it_was(tmp_path: Path) -> None:
    """The signals take turns; what finishes is compared, and begun again."""
    whole, started = Whole(made(tmp_path, 2)), time.monotonic()
    assert whole.start().wait() == 0, (tmp_path / "stderr").read_text()
    seconds, wanted = time.monotonic() - started, whole.traces()
    assert not list(tmp_path.rglob("*.journal"))
    whole.clear()
    rng, watch, kills, finished = random.Random(0), Watch(tmp_path / "results"), 0, False
    while kills < MOMENTS or not finished:
        watch.begin()
        running = whole.start()
        if kills < MOMENTS:
            time.sleep(rng.uniform(0, seconds))
            sent = SIGNALS[kills % len(SIGNALS)]
            kills += whole.kill(running, sent)
        finished = running.wait() == 0
        wait_for_the_last_child(tmp_path)
        watch.end()
        whole.unlock()
        if finished:
            assert_same(whole.traces(), wanted)
            if kills < MOMENTS:
                whole.clear()
