"""Killed at any moment: a plain rerun gives the same rows, and decodes none of them twice."""

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adafuse.storage.parquet import read_metadata
from tests.support.decode_jobs import DONE, DecodeJobs
from tests.support.small_workflow import SmallWorkflow, decode_command, flushed
from tests.support.traces import assert_same, decoded

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
MANY = 12
"""Moments at which the quick suite kills a decode job, and the soak suite."""
WHOLE = 6
"""Moments at which the soak suite kills a workflow: two for each signal."""


@pytest.fixture(scope="module")
def jobs() -> Iterator[DecodeJobs]:
    with DecodeJobs.started() as jobs:
        yield jobs


@pytest.mark.soak
def test_a_killed_decode_job_goes_on_where_it_was(
    jobs: DecodeJobs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The signals take turns; the kills go on until an attempt has found rows of another."""
    monkeypatch.chdir(SmallWorkflow.made(tmp_path, 1).folder)
    command, out = decode_command()
    results, log = tmp_path / "results", tmp_path / "job.log"
    whole = jobs.run(command, tmp_path, log)
    assert whole.status == 0, log.read_text()
    wanted = decoded(out)
    shutil.rmtree(out.parent)
    rng, kills, resumed = random.Random(0), 0, 0
    while kills < MANY or not resumed:
        before = flushed(results)
        killed = kills < MANY or not before
        sent = SIGNALS[kills % len(SIGNALS)]
        moment = (sent, rng.uniform(0, whole.seconds)) if killed else None
        ended = jobs.run(command, tmp_path, log, moment)
        kills += ended.status != 0
        rows = {("adafuse", name) for name in DONE.findall(log.read_text())}
        assert not before & rows, "a flushed row was decoded again"
        assert flushed(results) >= before | rows, "a row was lost"
        if ended.status == 0:
            assert_same(decoded(out), wanted)
            resumed += read_metadata(out)["resumed"] > 0
            shutil.rmtree(out.parent)


@dataclass
class Watch:
    """Compares what an attempt decoded, by its logs, with what was flushed before it."""

    results: Path
    before: set[tuple[str, str]] = field(default_factory=set)
    logs: dict[Path, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Take down how things stand."""
        self.before = flushed(self.results)
        self.logs = {path: path.read_text() for path in self._files()}

    def end(self) -> None:
        """Nothing flushed was decoded again or lost; all that was decoded is kept."""
        rows = self._decoded()
        assert len(rows) == len(set(rows))
        assert not self.before & set(rows)
        assert flushed(self.results) >= self.before | set(rows)

    def _files(self) -> Iterator[Path]:
        return self.results.glob("logs/decode/qa/*/*.log")

    def _decoded(self) -> list[tuple[str, str]]:
        found = []
        for path in self._files():
            text = path.read_text().removeprefix(self.logs.get(path, ""))
            found += [(path.parent.name, name) for name in DONE.findall(text)]
        return found


@pytest.mark.soak
def test_a_killed_workflow_goes_on_where_it_was(tmp_path: Path, forked_python: str) -> None:
    """The signals take turns; what finishes is compared, and begun again."""
    workflow, started = SmallWorkflow.made(tmp_path, 1, forked_python), time.monotonic()
    status, said = workflow.run()
    assert status == 0, said
    seconds, wanted = time.monotonic() - started, workflow.traces()
    assert not list(tmp_path.rglob("*.journal*"))
    workflow.clear()
    rng, watch, kills, finished = random.Random(0), Watch(workflow.results), 0, False
    while kills < WHOLE or not finished:
        watch.begin()
        running = workflow.start()
        if kills < WHOLE:
            time.sleep(rng.uniform(0, seconds))
            if running.poll() is None:
                os.killpg(running.pid, SIGNALS[kills % len(SIGNALS)])
                kills += 1
        finished = running.wait() == 0
        workflow.wait_for_the_last_child()
        watch.end()
        workflow.unlock()
        if finished:
            assert_same(workflow.traces(), wanted)
            if kills < WHOLE:
                workflow.clear()
