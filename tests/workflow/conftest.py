"""A small workflow on the toy models, and what Snakemake plans for it."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.configuration import values

__all__ = ["SHARDS", "Workplace", "unfinished", "values"]

ROOT = Path(__file__).parents[2]
SHARDS = {"qa": 2, "mt": 1}


Job = tuple[str, tuple[str, ...]]
"""A rule and the values of its wildcards, in the order of their names in the rule's output."""


@dataclass(frozen=True)
class Planned:
    """The jobs of a plan."""

    all: frozenset[Job]

    @property
    def jobs(self) -> Counter[str]:
        """How many jobs each rule has."""
        return Counter(rule for rule, _ in self.all)

    @property
    def decodes(self) -> set[tuple[str, str, int]]:
        """Benchmark, run and shard of the decode jobs."""
        found = [values for rule, values in self.all if rule == "decode"]
        return {(benchmark, run, int(shard)) for benchmark, run, shard in found}


@dataclass(frozen=True)
class Workplace:
    """A folder with a configuration, benchmark files and results; what runs Snakemake on it."""

    folder: Path
    python: str = sys.executable

    @property
    def hub(self) -> Path:
        """Where models of the hub are found, for there is no hub."""
        return self.folder / "hub"

    def snakemake(self, *arguments: str, configfile: str = "config.yaml") -> Any:
        return self._snakemake([self.python, "-m", "snakemake"], configfile, arguments)

    def _snakemake(self, command: list[str], configfile: str, arguments: Sequence[str]) -> Any:
        files = ["--snakefile", str(ROOT / "Snakefile"), "--configfile", configfile, "--cores=2"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_CACHE": str(self.hub)}
        return subprocess.run(
            [*command, *files, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
        )

    def run(self) -> None:
        done = self.snakemake()
        assert done.returncode == 0, done.stdout + done.stderr

    def plan(self) -> Planned:
        """What would run now."""
        script = str(ROOT / "tests/support/planned.py")
        done = self._snakemake([self.python, script], "config.yaml", [])
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"rule"')]
        found = map(json.loads, lines)
        jobs = [(job["rule"], tuple(job["wildcards"].values())) for job in found]
        assert len(set(jobs)) == len(jobs)
        return Planned(frozenset(jobs))

    def config(self) -> dict[str, Any]:
        return yaml.safe_load((self.folder / "config.yaml").read_text())

    def configure(self, change: Callable[[dict[str, Any]], object]) -> None:
        config = self.config()
        change(config)
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))

    def rows(self, benchmark: str) -> list[dict[str, Any]]:
        lines = (self.folder / f"{benchmark}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def write_rows(self, benchmark: str, rows: list[dict[str, Any]]) -> None:
        lines = [json.dumps(row) + "\n" for row in rows]
        (self.folder / f"{benchmark}.jsonl").write_text("".join(lines))


def _benchmark(name: str, scorer: str) -> dict[str, Any]:
    return {
        "source": {"file": f"{name}.jsonl"},
        "prompt": "Question: {question}\nAnswer:",
        "stop": ["\n"],
        "max_new_tokens": 6,
        "scorer": scorer,
        "shards": SHARDS[name],
    }


def _config() -> dict[str, Any]:
    models = {name: {"path": f"models/{name}"} for name in ("mistral", "llama")}
    return {
        "models": models,
        "benchmarks": {"qa": _benchmark("qa", "squad"), "mt": _benchmark("mt", "translation_13a")},
        "runs": {
            "llama": {"method": "single", "models": ["llama"]},
            "adafuse": {
                "method": "adafuse",
                "models": ["mistral", "llama"],
                "options": {"tau": 0.7},
            },
        },
        "decode": {"batch_size": 4, "device": "cpu", "gpu": 0},
    }


def unfinished(folder: Path, python: str = sys.executable) -> Workplace:
    """A workflow of which nothing has run."""
    for name in ("mistral", "llama"):
        shutil.copytree(ROOT / "adafuse/toy/models" / name, folder / "models" / name)
    for name, source in (("qa", "toy_qa"), ("mt", "toy_en_de")):
        lines = (ROOT / f"adafuse/toy/benchmarks/{source}.jsonl").read_text().splitlines()
        (folder / f"{name}.jsonl").write_text("\n".join(lines[:9]) + "\n")
    (folder / "config.yaml").write_text(yaml.safe_dump(_config(), sort_keys=False))
    return Workplace(folder, python)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, forked_python: str) -> Workplace:
    """A workflow that ran to its end in forked processes; tests must not change it."""
    place = unfinished(tmp_path_factory.mktemp("finished"), forked_python)
    place.run()
    return place


@pytest.fixture
def place(finished: Workplace, tmp_path: Path) -> Workplace:
    """A finished workflow of the test's own."""
    copy = tmp_path / "copy"
    shutil.copytree(finished.folder, copy, symlinks=True)
    return Workplace(copy, finished.python)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory, forked_python: str) -> Workplace:
    """config/toy.yaml, run to its end in a folder of its own."""
    place = Workplace(tmp_path_factory.mktemp("demo"), forked_python)
    for name in ("adafuse", "config"):  # its paths are relative to the project
        (place.folder / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "config/toy.yaml", place.folder / "config.yaml")
    place.run()
    return place
