"""On a Slurm cluster, the workflow starts two servers on two nodes, and ends them."""

from pathlib import Path

import pytest

from adafuse.storage.parquet import read_metadata
from adafuse.workflow.serving import Started
from tests.support.checkout import BENCHMARK, PATIENCE, SHORT, Checkout
from tests.support.slurm_cluster import NODES, command, needed_cluster, wait_for
from tests.support.vllm_stand_in import involved, program

pytestmark = pytest.mark.soak
MODELS = ("mistral", "llama")
TARGET = f"results/traces/{BENCHMARK}/adafuse.parquet"


def config(vllm: Path) -> dict[str, object]:
    """Two models, each with a server on the only GPU of a node."""
    serve = {"engine": "vllm", "command": str(vllm), "gpus": 1}
    use = f"config/benchmarks/{BENCHMARK}.yaml"
    return {
        "models": {n: {"path": f"adafuse/toy/models/{n}", "serve": serve} for n in MODELS},
        "benchmarks": {BENCHMARK: {"use": use, "limit": 6, "shards": 2}},
        "runs": {"adafuse": {"method": "adafuse", "models": [*MODELS]}},
    }


def listed() -> dict[str, tuple[str, str]]:
    """Return the node and the GPUs of the servers that run, by the name of their job."""
    lines = command("squeue", "--noheader", "--states=RUNNING", "-o", "%j %N %b").splitlines()
    words = [line.split() for line in lines if line.startswith("server-")]
    return {name: (node, cards) for name, node, cards in words}


def test_two_servers_run_on_two_nodes_until_their_last_job(tmp_path: Path) -> None:
    vllm = program(tmp_path)
    checkout = Checkout.made(tmp_path / "checkout", config(vllm))
    files = [checkout.folder / f"results/servers/{name}.json" for name in MODELS]
    with needed_cluster(), checkout.running("--profile", "slurm", *SHORT, TARGET) as snakemake:
        wait_for(lambda: all(Started.read(f).url for f in files), "both are ready", PATIENCE)
        jobs = listed()
        assert jobs.keys() == {f"server-{name}" for name in MODELS}
        assert {node for node, _ in jobs.values()} == set(NODES)
        checkout.finish(snakemake, 2 * PATIENCE)
        wait_for(lambda: not listed() and not involved(vllm), "both have ended")
    for shard in (0, 1):
        metadata = read_metadata(checkout.trace("adafuse", shard))
        assert metadata["place"]["slurm_job"] and metadata["failed"] == 0
    assert not any(file.exists() for file in files)
