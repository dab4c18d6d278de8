"""The paper's experiments, planned: which jobs each of them needs, on real and on toy models."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from adafuse.config.config import Config
from adafuse.config.reading import read_config
from adafuse.metrics.published import read_published
from adafuse.workflow.plan import Plan

from .conftest import ROOT

ROWS = 1000
SHARDS = {
    "natural_questions": 16,
    "squad": 12,
    "triviaqa": 24,
    "gsm8k": 16,
    "flores_en_de": 8,
    "flores_de_en": 8,
}
ALL = sum(SHARDS.values())
NQ = SHARDS["natural_questions"]
BRANCHING = sum(SHARDS[name] for name in ("natural_questions", "triviaqa", "gsm8k"))
WORDS = sum(SHARDS[name] for name in ("natural_questions", "squad", "flores_de_en"))
MODELS, PAIRS, BASELINES = 4, 6, 12

# Decode jobs of each experiment if it is made alone: its own runs, and what these start from.
DECODES = {
    # Each model also on the six development benchmarks of one shard.
    "table_1": ALL * (MODELS + PAIRS + BASELINES) + 6 * MODELS,
    "table_2": (MODELS + 3) * NQ,
    "figure_2": 4 * NQ,
    "figure_4": 5 * BRANCHING,
    "figure_4_all": 2 * ALL,
    # One shard; two models, all baselines, two fixed lengths, and adafuse twice.
    "figure_5": 2 + BASELINES + 4,
    "figure_6": 11 * NQ,
    "figure_7": (5 + 5) * NQ,
    "words": 2 * WORDS,
    "fusion_rules": 3 * ALL,
}
TOGETHER = (
    DECODES["table_1"]
    + 3 * NQ  # two, three and four models
    + 3 * NQ  # fixed lengths
    + 3 * BRANCHING  # B = 2, 4, 5; figure 7 has them on NQ
    + ALL  # B = 3
    + DECODES["figure_5"]
    + 10 * NQ  # thresholds besides 0.7
    + 5 * NQ  # beams
    + 2 * ALL  # fusion rules besides mean_nll
)


def planned(config: Path, *targets: str) -> Counter[str]:
    """Return the jobs of a plan by rule."""
    command = [
        sys.executable,
        "-m",
        "snakemake",
        *targets,
        "--dry-run",
        "--configfile",
        str(config),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    stats = text.split("Job stats:")[1].split("\n\n")[0]
    found = re.findall(r"^(\w+) +(\d+)$", stats, re.MULTILINE)
    return Counter({rule: int(count) for rule, count in found if rule != "total"})


def written(values: dict[str, Any], folder: Path) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**values, "results": str(folder / "results")}))
    return path


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """config/paper.yaml with rows of ours, so that nothing has to be fetched."""
    folder = tmp_path_factory.mktemp("paper")
    for kind in ("test", "dev"):
        rows = [{"question": f"{kind} question {n}?", "answer": f"{n}"} for n in range(ROWS)]
        (folder / f"{kind}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = yaml.safe_load((ROOT / "config/paper.yaml").read_text())
    for name, task in values["benchmarks"].items():
        kind = "dev" if name.endswith("_dev") else "test"
        task["source"] = {"file": str(folder / f"{kind}.jsonl")}
        if name.startswith("flores"):
            task["scorer"] = "translation_13a"  # planning would look for spBLEU's model
    return written(values, folder)


def decode_jobs(config: Config, *experiments: str) -> int:
    """Count what these experiments alone need decoded."""
    changes = {
        "main": config.main.model_copy(update={"runs": (), "benchmarks": ()}),
        "targets": ("experiments",),
        "experiments": {name: config.experiments[name] for name in experiments},
    }
    cells = Plan(config.model_copy(update=changes)).requested_cells()
    return sum(config.benchmarks[benchmark].shards for benchmark, _ in cells)


@pytest.mark.parametrize("experiment", DECODES)
def test_an_experiment_needs_its_own_runs_and_what_these_start_from(experiment: str) -> None:
    assert decode_jobs(read_config(ROOT / "config/paper.yaml"), experiment) == DECODES[experiment]


def test_table_2_adds_mistral_and_then_qwen3_to_internlm3_and_llama() -> None:
    config = read_config(ROOT / "config/paper.yaml")
    table = config.experiments["table_2"]
    assert table.benchmarks == ("natural_questions",)
    ensembles = [config.runs[run] for run in table.runs[-3:]]
    assert [run.models for run in ensembles] == [
        ("internlm3", "llama"),
        ("internlm3", "llama", "mistral"),
        ("internlm3", "llama", "mistral", "qwen3"),
    ]
    assert all(dict(run.options)["branching"] == 3 for run in ensembles)


def test_every_row_of_the_papers_tables_is_shown_beside_a_run() -> None:
    config = read_config(ROOT / "config/paper.yaml")
    shown = [row for each in config.experiments.values() for row in each.published.values()]
    tables = read_published(ROOT / "config/published.yaml").tables
    rows = {row.name for table in (tables[0], tables[2]) for row in table.rows}
    assert set(shown) == rows


def test_no_run_of_two_experiments_is_decoded_twice() -> None:
    assert decode_jobs(read_config(ROOT / "config/paper.yaml"), *DECODES) == TOGETHER


@pytest.mark.soak
def test_an_experiment_alone_plans_nothing_else(paper: Path) -> None:
    jobs = planned(paper, "figure_5")
    assert jobs["decode"] == DECODES["figure_5"]
    assert jobs["experiment"] == jobs["figure_5"] == 1
    assert jobs["compare"] == jobs["audit"] == 0


@pytest.mark.soak
def test_the_whole_paper_is_planned_and_no_run_is_decoded_twice(paper: Path) -> None:
    jobs = planned(paper)
    assert jobs["decode"] == TOGETHER
    assert jobs["experiment"] == len(DECODES)
    assert jobs["choose"] == 3 * len(SHARDS)
    assert jobs["prepare"] == 2 * len(SHARDS)  # the timed benchmark is never scored
    assert jobs["shard"] == ALL + len(SHARDS) + 1
    assert planned(paper, "paper") - Counter(paper=1) == jobs - Counter(all=1)


@pytest.mark.soak
def test_the_paper_is_planned_without_a_network(tmp_path: Path) -> None:
    """An experiment on all benchmarks."""
    values = yaml.safe_load((ROOT / "config/paper.yaml").read_text())
    config = written(values, tmp_path)
    assert planned(config, "figure_4_all")["decode"] == DECODES["figure_4_all"]


@pytest.mark.soak
def test_the_toy_world_plans_the_papers_experiments(tmp_path: Path) -> None:
    toy = yaml.safe_load((ROOT / "config/toy.yaml").read_text())
    assert planned(written(toy, tmp_path), "paper_toy")["experiment"] == len(DECODES)


def test_the_toy_world_has_the_papers_experiments() -> None:
    toy, real = (
        yaml.safe_load((ROOT / f"config/{name}.yaml").read_text()) for name in ("toy", "paper")
    )
    assert list(toy["experiments"]) == list(real["experiments"]) == list(DECODES)
    for name, experiment in toy["experiments"].items():
        other = real["experiments"][name]
        assert (experiment["kind"], experiment["runs"]) == (other["kind"], other["runs"]), name
        assert experiment.get("options") == other.get("options")
    assert toy["runs"].keys() == real["runs"].keys()
