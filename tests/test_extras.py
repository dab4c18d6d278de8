"""`pip install adafuse` is enough for decoding, and what needs an extra names it."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from adafuse.cli.errors import EXTRAS
from tests.conftest import toy_path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = {
    "bert_score": "bert-score",
    "compressed_tensors": "compressed-tensors",
    "prometheus_client": "prometheus-client",
    "vl_convert": "vl-convert-python",
}
"""Distributions that are not named as their module is."""

FILES = ["--predictions", "rows.jsonl", "--references", "rows.jsonl"]
BASE_INSTALLATION = """
import json, sys
sys.modules |= dict.fromkeys({modules})
from adafuse.cli.errors import run
from adafuse.cli.main import app
statuses = []
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        statuses.append(run(app))
    except SystemExit as end:
        statuses.append(end.code or 0)
print(json.dumps(statuses))
"""


def run(folder: Path, *commands: list[str]) -> tuple[list[int], str]:
    """Run commands in one process that has no module of any extra; return statuses and stderr."""
    modules = [module for extra in EXTRAS.values() for module in extra]
    code = BASE_INSTALLATION.format(modules=modules)
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.soak
def test_the_base_installation_decodes_shows_and_is_healthy(tmp_path: Path) -> None:
    models = ["--model", toy_path("mistral"), "--model", toy_path("llama"), "--device", "cpu"]
    prompt = ["--prompt", "Question: who?\nAnswer:", "--max-new-tokens", "4"]
    statuses, said = run(
        tmp_path,
        ["--help"],
        ["methods"],
        ["generate", *models, *prompt, "--out", "out.parquet"],
        ["show", "out.parquet"],
        ["doctor", *models],
    )
    assert statuses == [0, 0, 0, 0, 0], said


def test_a_command_that_needs_an_extra_names_it_in_a_sentence(tmp_path: Path) -> None:
    row = {"id": "1", "question": "a", "answer": "ein", "text": "ein"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    needed = {
        "workflow": ["score", "--benchmark", "flores_en_de", *FILES],
        "report": ["report", "out.parquet"],
        "lm-eval": ["lm-eval", "--help"],
    }
    extras, commands = [*needed, "workflow"], [*needed.values(), ["audit", *needed["workflow"][1:]]]
    statuses, said = run(tmp_path, *commands)
    assert statuses == [2] * len(commands)
    for line, extra in zip(said.splitlines(), extras, strict=True):
        assert line.startswith("error: ")
        assert line.endswith(
            f"; run pip install '.[{extra}]' in a clone ('adafuse[{extra}]' where it is published)"
        )


def test_every_module_of_an_extra_is_one_of_its_requirements() -> None:
    unimportable = {"snakemake-executor-plugin-slurm", "markdown-it-py"}  # or needed by rich too
    for extra, modules in EXTRAS.items():
        asked = list(map(Requirement, PROJECT["optional-dependencies"][extra]))
        own = {each.name for each in asked if each.name != "adafuse"}
        others = {
            Requirement(line).name
            for each in asked
            for name in (each.extras if each.name == "adafuse" else ())
            for line in PROJECT["optional-dependencies"][name]
        }
        named = {DISTRIBUTIONS.get(module, module) for module in modules}
        assert own - unimportable <= named <= own | others


def test_messages_and_pages_name_the_command_that_works_in_a_clone() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "config/README.md"]
    for file in [*pages, *(ROOT / "adafuse").rglob("*.py")]:
        for line in file.read_text(encoding="utf-8").splitlines():
            assert "adafuse[" not in line or "'.[" in line, f"{file}: {line}"
