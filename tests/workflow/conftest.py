"""A small workflow on the toy models, and what Snakemake plans for it."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SHARDS = 3


@dataclass(frozen=True)
class Planned:
    """Jobs by rule, and the wildcards of the decode jobs as (benchmark, run, shard)."""

    jobs: Counter[str]
    decodes: set[tuple[str, str, int]]


@dataclass(frozen=True)
class Workplace:
    """A folder with a configuration, benchmark files and results."""

    folder: Path

    def snakemake(self, *arguments: str, configfile: str = "config.yaml") -> Any:
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
        files = ["--configfile", configfile, "--cores", "2"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
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
        done = self.snakemake("--dry-run")
        text = done.stdout + done.stderr
        assert done.returncode == 0, text
        rules = re.findall(r"^(?:local)?rule (\w+):$", text, re.MULTILINE)
        pattern = r"rule decode:.*?wildcards: benchmark=(\w+), run=(\w+), shard=(\d+)"
        found = re.findall(pattern, text, re.DOTALL)
        return Planned(Counter(rules), {(b, run, int(shard)) for b, run, shard in found})

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


def _benchmark(name: str, metric: str) -> dict[str, Any]:
    return {
        "source": {"file": f"{name}.jsonl"},
        "prompt": "Question: {question}\nAnswer:",
        "stop": ["\n"],
        "max_new_tokens": 6,
        "metric": metric,
        "shards": SHARDS,
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


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workflow that ran to its end; tests must not change it."""
    place = Workplace(tmp_path_factory.mktemp("finished"))
    for name in ("mistral", "llama"):
        shutil.copytree(ROOT / "adafuse/toy/models" / name, place.folder / "models" / name)
    for name, source in (("qa", "toy_qa"), ("mt", "toy_en_de")):
        lines = (ROOT / f"adafuse/toy/benchmarks/{source}.jsonl").read_text().splitlines()
        (place.folder / f"{name}.jsonl").write_text("\n".join(lines[:9]) + "\n")
    (place.folder / "config.yaml").write_text(yaml.safe_dump(_config(), sort_keys=False))
    place.run()
    return place


@pytest.fixture
def place(finished: Workplace, tmp_path: Path) -> Workplace:
    """A finished workflow of the test's own."""
    copy = tmp_path / "copy"
    shutil.copytree(finished.folder, copy, symlinks=True)
    return Workplace(copy)
