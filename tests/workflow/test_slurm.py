"""The workflow on a Slurm cluster of two nodes: its tables, its resources, and its accidents."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.checkout import BENCHMARK, SHARDS, SHORT, Checkout
from tests.support.slurm_cluster import NODES, PATIENCE, Cluster, needed_cluster, wait_for
from tests.support.traces import assert_same

pytestmark = pytest.mark.soak

ROWS = 60
RUNS = ("llama", "adafuse")
MINUTES = 7
MEMORY = 3000
ADAFUSE = f"results/traces/{BENCHMARK}/adafuse.parquet"
CONFIG: dict[str, Any] = {
    "models": {name: {"path": f"adafuse/toy/models/{name}"} for name in ("mistral", "llama")},
    "benchmarks": {
        BENCHMARK: {
            "use": f"config/benchmarks/{BENCHMARK}.yaml",
            "limit": ROWS,
            "shards": len(SHARDS),
        }
    },
    "runs": {
        "llama": {"method": "single", "models": ["llama"]},
        "adafuse": {
            "method": "adafuse",
            "models": ["mistral", "llama"],
            "options": {"tau": 1.0, "branching": 5},
            "cluster": {"runtime": MINUTES, "mem_mb": MEMORY},
        },
    },
    # A GPU that is no GPU: what counts here is that Slurm gives it to the job.
    "decode": {"device": "cpu", "gpu": 1, "batch_size": 1},
}


@pytest.fixture(scope="module")
def machine() -> Iterator[Cluster]:
    """A cluster for all tests of this file."""
    with needed_cluster() as started:
        yield started


@pytest.fixture
def cluster(machine: Cluster) -> Iterator[Cluster]:
    """A cluster on which nothing runs."""
    yield machine
    machine.clear()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The workflow without a cluster."""
    checkout = Checkout.made(tmp_path_factory.mktemp("local") / "checkout", CONFIG)
    checkout.run("--cores=2")
    return checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """The workflow before anything has run."""
    return Checkout.made(tmp_path / "checkout", CONFIG)


@dataclass(frozen=True)
class Frozen:
    """A decode job that was stopped among its rows: its number, node, shard and rows so far."""

    job: int
    node: str
    shard: int
    kept: int
    process: psutil.Process


def frozen(checkout: Checkout) -> list[Frozen]:
    """Stop both decode jobs, one on each node."""
    found = []
    for shard in SHARDS:
        process = checkout.freeze("adafuse", shard)
        environment, kept = process.environ(), checkout.journal_lines("adafuse", shard)
        job, node = int(environment["SLURM_JOB_ID"]), environment["SLURMD_NODENAME"]
        found.append(Frozen(job, node, shard, kept, process))
    assert {each.node for each in found} == set(NODES)
    return found


def assert_resumed(checkout: Checkout, stopped: Frozen, local: Checkout) -> None:
    """The next attempt has found the rows of the first one, and has decoded none of them again."""
    assert 0 < stopped.kept <= checkout.resumed("adafuse", stopped.shard)
    log = checkout.decode_log("adafuse", stopped.shard)
    assert log.count(" running on node") == 2
    decoded = Counter(re.findall(r" of \d+: (\S+) \(", log))
    assert set(decoded.values()) == {1}
    assert_same(checkout.rows("adafuse"), local.rows("adafuse"))


def test_the_tables_are_those_of_a_local_run_with_jobs_on_both_nodes(
    cluster: Cluster, checkout: Checkout, local: Checkout
) -> None:
    checkout.run("--profile", "slurm", *SHORT)
    assert {"main.csv", "comparison.csv", "words_per_round.csv"} <= checkout.tables().keys()
    assert checkout.tables() == local.tables()
    places = [checkout.place(run, shard) for run in RUNS for shard in SHARDS]
    assert {place["host"] for place in places} == set(NODES)
    assert {place["cuda_visible_devices"] for place in places} == {"0"}
    assert len({place["slurm_job"] for place in places}) == len(places)


def test_what_is_lost_with_a_node_goes_on_at_the_other(
    cluster: Cluster, checkout: Checkout, local: Checkout
) -> None:
    with checkout.running("--profile", "slurm", *SHORT, ADAFUSE) as snakemake:
        stays, lost = sorted(frozen(checkout), key=lambda each: each.node)
        cluster.lose_node(lost.node)
        wait_for(lambda: lost.job in cluster.jobs("PENDING"), "the job is in the queue again")
        cluster.start_soon(lost.job)
        stays.process.resume()
        checkout.finish(snakemake)
    assert checkout.place("adafuse", lost.shard)["host"] == stays.node
    assert_resumed(checkout, lost, local)


def test_after_a_time_limit_or_scancel_a_job_goes_on_and_asks_for_more(
    cluster: Cluster, checkout: Checkout, local: Checkout
) -> None:
    with checkout.running("--profile", "slurm", *SHORT, ADAFUSE) as snakemake:
        late, cancelled = frozen(checkout)
        assert asked(cluster, late.job) == (MINUTES, MEMORY)
        cluster.end_time_limit(late.job)
        cluster.cancel(cancelled.job)
        wait_for(lambda: cluster.job(late.job)["JobState"] == "TIMEOUT", "the time is over")
        checkout.finish(snakemake)
    for stopped in (late, cancelled):
        again = int(checkout.place("adafuse", stopped.shard)["slurm_job"])
        assert again not in (late.job, cancelled.job)
        assert asked(cluster, again) == (2 * MINUTES, 2 * MEMORY)
        assert_resumed(checkout, stopped, local)
    logs = checkout.folder / f"results/logs/slurm/rule_decode/{BENCHMARK}_adafuse_{late.shard}"
    assert "DUE TO TIME LIMIT" in (logs / f"{late.job}.log").read_text()


def asked(cluster: Cluster, number: int) -> tuple[int, int]:
    """Return the minutes and megabytes that a job has asked for."""
    job = cluster.job(number)
    hours, minutes, _ = map(int, job["TimeLimit"].split(":"))
    return 60 * hours + minutes, int(job["MinMemoryNode"].removesuffix("M"))


def test_snakemake_waits_while_the_controller_is_away(
    cluster: Cluster, checkout: Checkout, local: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_sacct(checkout, monkeypatch)
    with checkout.running("--profile", "slurm", *SHORT, ADAFUSE) as snakemake:
        stopped = frozen(checkout)
        with cluster.without_controller():
            time.sleep(15)
        for each in stopped:
            each.process.resume()
        checkout.finish(snakemake)
    assert {checkout.place("adafuse", each.shard)["slurm_job"] for each in stopped} == {
        str(each.job) for each in stopped
    }
    assert_same(checkout.rows("adafuse"), local.rows("adafuse"))


def hide_sacct(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no `sacct` be found, as where Slurm is installed without its accounting."""
    which = checkout.folder / "bin/which"
    which.parent.mkdir()
    which.write_text('#!/bin/sh\n[ "$1" != sacct ] && exec /usr/bin/which "$@"\n')
    which.chmod(0o755)
    monkeypatch.setenv("PATH", f"{which.parent}:{os.environ['PATH']}")


def test_a_snakemake_that_forgot_its_jobs_is_stopped_and_started_again(
    cluster: Cluster, checkout: Checkout, local: Checkout
) -> None:
    """The plug-in asks `sacct` while the controller is away; here that has never an answer."""
    with checkout.running(
        "--profile", "slurm", *SHORT, "--slurm-status-attempts=1", ADAFUSE
    ) as first:
        stopped = frozen(checkout)
        with cluster.without_controller():
            time.sleep(15)
        for each in stopped:
            each.process.resume()
        wait_for(lambda: not cluster.jobs("RUNNING"), "the jobs have ended")
        first.send_signal(signal.SIGINT)
        assert first.wait(60) != 0
    checkout.run("--profile", "slurm", *SHORT, ADAFUSE)
    assert_same(checkout.rows("adafuse"), local.rows("adafuse"))
    for each in stopped:
        decoded = re.findall(r" of \d+: (\S+) \(", checkout.decode_log("adafuse", each.shard))
        assert len(decoded) == len({*decoded})


def test_decode_jobs_may_be_an_array_in_a_partition_that_the_user_names(
    cluster: Cluster, checkout: Checkout, local: Checkout
) -> None:
    shards = [f"results/benchmarks/{BENCHMARK}/shards/{shard}.jsonl" for shard in SHARDS]
    checkout.run(*shards, "--cores=2")
    chosen = ["--slurm-array-jobs=decode", "--default-resources", "slurm_partition=other"]
    checkout.run(ADAFUSE, "--profile", "slurm", *SHORT, *chosen)
    jobs = [cluster.job(int(checkout.place("adafuse", shard)["slurm_job"])) for shard in SHARDS]
    assert len({job["ArrayJobId"] for job in jobs}) == 1
    assert {job["ArrayTaskId"] for job in jobs} == {"1", "2"}
    assert {job["Partition"] for job in jobs} == {"other"}
    assert_same(checkout.rows("adafuse"), local.rows("adafuse"))


def test_decode_jobs_that_share_models_are_one_job_which_loads_them_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    fused = CONFIG["runs"]["adafuse"]
    runs = CONFIG["runs"] | {"wide": fused | {"options": {"branching": 3}}}
    alone = Checkout.made(tmp_path / "alone", CONFIG | {"runs": runs})
    alone.run("--cores=2")
    together = Checkout.made(
        tmp_path / "together", CONFIG | {"runs": runs, "cluster": {"group": 4}}
    )
    together.run("--profile", "slurm", *SHORT)
    assert together.tables() == alone.tables()
    places = {run: [together.place(run, shard)["slurm_job"] for shard in SHARDS] for run in runs}
    assert len({*places["llama"]}) == len({*places["adafuse"], *places["wide"]}) == 1
    number = int(places["wide"][0])
    assert asked(cluster, number)[0] > 2 * MINUTES  # of one after the other
    assert cluster.job(number)["TresPerJob"] == "gres:gpu:1"
    logs = [together.decode_log(run, shard) for run in ("adafuse", "wide") for shard in SHARDS]
    assert sum("loading " in log for log in logs) == 1
    for run in runs:
        assert_same(together.rows(run), alone.rows(run))


def test_a_job_that_slurm_refuses_has_failed(cluster: Cluster, checkout: Checkout) -> None:
    refused = ["--default-resources", "slurm_partition=nowhere", "--retries=0"]
    with checkout.running(ADAFUSE, "--profile", "slurm", *SHORT, *refused) as snakemake:
        assert snakemake.wait(PATIENCE) != 0
    line = [sys.executable, "-m", "adafuse", "status"]
    told = subprocess.run(line, cwd=checkout.folder, capture_output=True, text=True)
    assert told.returncode == 1
    assert len(re.findall(r"failed: .*: invalid partition specified: nowhere", told.stdout)) == 2


def test_a_job_of_two_gpus_is_never_spread_over_two_nodes(cluster: Cluster, tmp_path: Path) -> None:
    """Each node has one GPU: without --nodes=1 Slurm gives the job both nodes."""
    fused = CONFIG["runs"]["adafuse"] | {"cluster": {"gpu": 2}}
    checkout = Checkout.made(tmp_path / "checkout", CONFIG | {"runs": {"adafuse": fused}})
    with checkout.running(ADAFUSE, "--profile", "slurm", *SHORT, "--retries=0") as snakemake:
        assert snakemake.wait(PATIENCE) != 0
    assert not list((checkout.folder / "results/traces").rglob("*.parquet"))
    line = [sys.executable, "-m", "adafuse", "status"]
    told = subprocess.run(line, cwd=checkout.folder, capture_output=True, text=True)
    assert told.returncode == 1
    assert "Requested node configuration is not available" in told.stdout
