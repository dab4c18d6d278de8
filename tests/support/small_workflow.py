"""A workflow of two runs on one benchmark, up to its merged traces, to be done harm to."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from adafuse.benchmarks.shards import write_shard
from adafuse.storage.parquet import read_rows
from adafuse.workflow.plan import Plan
from adafuse.workflow.steps import Job
from tests.support.traces import decoded

ROOT = Path(__file__).parents[2]
RUNS = ("llama", "adafuse")
ROWS = 16


def configuration(shards: int) -> dict[str, Any]:
    """A run of one model and one of two; rows that end one by one."""
    models = ROOT / "adafuse/toy/models"
    task = {
        "source": {"file": "qa.jsonl"},
        "prompt": "Question: {question}\nAnswer:",
        "max_new_tokens": 12,
        "scorer": "squad",
        "shards": shards,
    }
    fused = {"method": "adafuse", "models": ["mistral", "llama"], "options": {"tau": 1.0}}
    return {
        "models": {name: {"path": str(models / name)} for name in ("mistral", "llama")},
        "benchmarks": {"qa": task},
        "runs": {"llama": {"method": "single", "models": ["llama"]}, "adafuse": fused},
        "decode": {"batch_size": 2, "device": "cpu", "gpu": 0},
    }


def decode_command(shards: int = 1) -> tuple[list[str], Path]:
    """The command of a decode job in the current folder, whose files are made, and its trace."""
    plan = Plan.of(configuration(shards))
    plan.store_config()
    write_shard(plan.layout.shard_rows("qa", 0), plan.prepared("qa").shard(0))
    job = Job.of("decode", "qa", "adafuse", 0)
    return plan.command(job)[1:], plan.layout.shard_trace("qa", "adafuse", 0)


def flushed(results: Path) -> set[tuple[str, str]]:
    """Run and id of every row of which a whole line stands in a journal, or that has a trace."""
    found = set()
    for path in results.rglob("traces/qa/*/*"):
        if path.suffix == ".journal":
            lines = path.read_bytes().split(b"\n")[:-1]
            rows = [json.loads(line.partition(b" ")[2])["row"] for line in lines]
            found |= {(path.parent.name, row["id"]) for row in rows}
        elif path.suffix == ".parquet" and not path.name.startswith("."):
            found |= {(path.parent.name, row["id"]) for row in read_rows(path, ["id"])}
    return found


@dataclass(frozen=True)
class SmallWorkflow:
    """A folder with the configuration and its rows, and the Python that runs Snakemake there."""

    folder: Path
    python: str = sys.executable

    @classmethod
    def made(cls, folder: Path, shards: int, python: str = sys.executable) -> "SmallWorkflow":
        folder.mkdir(exist_ok=True)
        lines = (ROOT / "adafuse/toy/benchmarks/toy_qa.jsonl").read_text().splitlines()[:ROWS]
        (folder / "qa.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "config.yaml").write_text(yaml.safe_dump(configuration(shards), sort_keys=False))
        return cls(folder, python)

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def start(
        self, *arguments: str, said: str = "stderr", targets: Sequence[str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start Snakemake and its jobs as a process group; what it says goes to a file."""
        if targets is None:
            targets = [f"results/traces/qa/{run}.parquet" for run in RUNS]
        return subprocess.Popen(
            [self.python, "-m", "snakemake", *targets, "--snakefile", str(ROOT / "Snakefile"),
             "--cores", "2", "--configfile", "config.yaml", *arguments],
            cwd=self.folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL, stderr=(self.folder / said).open("wb"),
            start_new_session=True,
        )  # fmt: skip

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run to the end; return the exit status and what was said."""
        status = self.start(*arguments).wait()
        self.wait_for_the_last_child()
        return status, (self.folder / "stderr").read_text()

    def wait_for_the_last_child(self) -> None:
        """Wait for jobs that end a moment after Snakemake."""
        until = time.monotonic() + 30
        while any(_works_in(process, self.folder) for process in psutil.process_iter()):
            assert time.monotonic() < until
            time.sleep(0.05)

    def traces(self) -> list[list[dict[str, Any]]]:
        """The rows of both runs."""
        return [decoded(self.folder / f"results/traces/qa/{run}.parquet") for run in RUNS]

    def log(self, run: str, shard: int = 0) -> str:
        """The log of a decode job."""
        return (self.results / f"logs/decode/qa/{run}/{shard}.log").read_text()

    def unlock(self) -> None:
        """What `snakemake --unlock` does, which it asks for after SIGKILL."""
        shutil.rmtree(self.folder / ".snakemake/locks", ignore_errors=True)

    def clear(self) -> None:
        """Begin again."""
        for name in ("results", ".snakemake"):
            shutil.rmtree(self.folder / name, ignore_errors=True)


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.pid != os.getpid() and Path(process.cwd()) == folder
    except psutil.Error:
        return False
