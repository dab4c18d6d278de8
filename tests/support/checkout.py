"""A checkout of the project with a small workflow in it, run as a user does."""

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from adafuse.storage.parquet import read_metadata
from tests.support.traces import decoded

from .slurm_cluster import wait_for

ROOT = Path(__file__).parents[2]
PARTS = ("Snakefile", "workflow", "profiles", "slurm", "adafuse", "config")
BENCHMARK = "toy_qa"
SHARDS = (0, 1)
PATIENCE = 240  # seconds, on a busy machine

# Waiting times for a cluster on this machine; the command line goes before the profile.
SHORT = ("--slurm-init-seconds-before-status-checks=1", "--latency-wait=5")


@dataclass(frozen=True)
class Checkout:
    """A folder with links to the project's parts, a configuration and results."""

    folder: Path

    @classmethod
    def made(cls, folder: Path, config: Mapping[str, Any]) -> "Checkout":
        """Make one."""
        folder.mkdir()
        for part in PARTS:
            (folder / part).symlink_to(ROOT / part)
        (folder / "config.yaml").write_text(yaml.safe_dump(dict(config), sort_keys=False))
        return cls(folder)

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Run `snakemake` on the configuration, its words in `said`; at the end nothing runs."""
        line = [sys.executable, "-m", "snakemake", *words, "--configfile", "config.yaml"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with (self.folder / "said").open("w") as said:
            process = subprocess.Popen(
                line, cwd=self.folder, env=environment, stdout=said, stderr=said, text=True,
                start_new_session=True,
            )  # fmt: skip
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def run(self, *words: str, patience: float = PATIENCE) -> None:
        """Run `snakemake` to its end."""
        with self.running(*words) as process:
            self.finish(process, patience)

    def finish(self, process: subprocess.Popen[str], patience: float = PATIENCE) -> None:
        """Wait for the end of a run."""
        assert process.wait(patience) == 0, self.said()

    def said(self) -> str:
        """Return what the last run printed."""
        return (self.folder / "said").read_text()

    def trace(self, run: str, shard: int) -> Path:
        """Return the trace of a decode job."""
        return self.folder / f"results/traces/{BENCHMARK}/{run}/{shard}.parquet"

    def journal_lines(self, run: str, shard: int) -> int:
        """Return how many rows the journal of a decode job holds."""
        journal = self.trace(run, shard).with_suffix(".journal")
        return journal.read_bytes().count(b"\n") if journal.exists() else 0

    def place(self, run: str, shard: int) -> dict[str, str]:
        """Return where a decode job ran."""
        return read_metadata(self.trace(run, shard))["place"]

    def resumed(self, run: str, shard: int) -> int:
        """Return how many rows a decode job found in its journal."""
        return read_metadata(self.trace(run, shard))["resumed"]

    def rows(self, run: str) -> list[dict[str, Any]]:
        """Return all rows of a run, without what they cost."""
        return [row for shard in SHARDS for row in decoded(self.trace(run, shard))]

    def decode_log(self, run: str, shard: int) -> str:
        """Return the log of a decode job, all attempts."""
        return (self.folder / f"results/logs/decode/{BENCHMARK}/{run}/{shard}.log").read_text()

    def tables(self) -> dict[str, list[dict[str, str]]]:
        """Return the values of all tables by file name."""
        found = {}
        for path in sorted((self.folder / "results/tables").glob("*.csv")):
            with path.open() as file:
                found[path.name] = list(csv.DictReader(file))
        return found

    def freeze(self, run: str, shard: int) -> psutil.Process:
        """Stop the process of a decode job that has finished some rows, not all; return it."""
        decodes = f"{run} {shard} decodes"
        wait_for(lambda: self.journal_lines(run, shard) > 1, decodes, patience=PATIENCE)
        process = self._decoding(run, shard)
        process.suspend()
        return process

    def _decoding(self, run: str, shard: int) -> psutil.Process:
        words = {"decode", f"--benchmark={BENCHMARK}", f"--run={run}", f"--shard={shard}"}
        (found,) = (
            each
            for each in psutil.process_iter(["cmdline", "cwd"])
            if words <= set(each.info["cmdline"] or ()) and each.info["cwd"] == str(self.folder)
        )
        return found
