"""Datasets as sources of a benchmark: fetched once, then planned from without them."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from adafuse.config.reading import parse_config
from adafuse.errors import UserError
from adafuse.models import files as identity
from adafuse.workflow import benchmarks as sources
from adafuse.workflow.benchmarks import (
    UnavailableSourceError,
    benchmark_rows,
    source_file,
)
from adafuse.workflow.plan import Plan

ROOT = Path(__file__).parents[2]


@pytest.fixture
def from_dataset(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The configuration with a dataset folder as source."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    write(tmp_path / "data", "a")
    source = {"dataset": str(tmp_path / "data"), "split": "test", "fields": {"id": "key"}}
    values["benchmarks"]["qa"]["source"] = source
    return values


def write(folder: Path, answer: str) -> None:
    folder.mkdir(exist_ok=True)
    rows = [{"key": f"r{n}", "question": f"q{n}?", "answer": f"{answer}{n}"} for n in range(12)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "test-00000-of-00001.parquet")


def test_a_dataset_is_fetched_once_and_its_rows_are_those_of_a_file(
    from_dataset: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan.of(from_dataset)
    (file,) = plan.source("qa")
    assert Path(file).parent == tmp_path / "results/sources"
    assert [row.id for row in plan.prepared("qa").rows] == [f"r{n}" for n in range(12)]
    monkeypatch.setattr(sources, "_fetch", None)
    again = Plan.of(from_dataset)
    assert again.source("qa") == [file]
    assert again.prepared("qa") == plan.prepared("qa")


def test_other_content_or_fields_are_fetched_again(
    from_dataset: dict[str, Any], tmp_path: Path
) -> None:
    config = parse_config(from_dataset)
    first = source_file(config, "qa")
    write(tmp_path / "data", "b")
    identity.content_digest.cache_clear()  # a folder is read once per process
    second = source_file(config, "qa")
    assert first != second
    assert benchmark_rows(config, "qa")[0].answers == ("b0",)
    from_dataset["benchmarks"]["qa"]["source"]["fields"]["answer"] = "question"
    assert source_file(parse_config(from_dataset), "qa") not in (first, second)


def test_a_dataset_that_cannot_be_loaded_is_one_sentence(from_dataset: dict[str, Any]) -> None:
    from_dataset["benchmarks"]["qa"]["source"]["split"] = "dev"
    with pytest.raises(UserError) as error:
        Plan.of(from_dataset)
    assert 'Unknown split "dev"' in str(error.value)
    assert "\n" not in str(error.value) and not str(error.value).startswith("error")


def test_a_hub_dataset_out_of_reach_is_one_sentence(from_dataset: dict[str, Any]) -> None:
    source = {"dataset": "org/name", "split": "test", "revision": "0" * 40}
    from_dataset["benchmarks"]["qa"]["source"] = source
    with pytest.raises(UnavailableSourceError, match=r"cannot be loaded .* set HF_HUB_OFFLINE=1"):
        source_file(parse_config(from_dataset), "qa")


def test_a_hub_dataset_without_a_commit_is_never_fetched(from_dataset: dict[str, Any]) -> None:
    from_dataset["benchmarks"]["qa"]["source"] = {"dataset": "org/name", "split": "test"}
    with pytest.raises(UnavailableSourceError, match=r"'org/name' has no revision; pin it with"):
        source_file(parse_config(from_dataset), "qa")


def test_what_is_missing_is_planned_as_if_it_were_new(from_dataset: dict[str, Any]) -> None:
    from_dataset["benchmarks"]["qa"]["source"] = {"dataset": "org/name", "split": "test"}
    plan = Plan.of(from_dataset)
    assert "has no revision" in plan.missing["qa"]
    assert plan.source("qa") == [] and plan.prepared("qa").rows == ()
    assert plan.digest("qa", "both", 0) == plan.digest("qa", "both", 1)


def test_a_revision_is_for_the_hub_alone(from_dataset: dict[str, Any]) -> None:
    from_dataset["benchmarks"]["qa"]["source"]["revision"] = "0" * 40
    with pytest.raises(UserError, match=r"is for hub datasets, but .* is a folder; remove it"):
        parse_config(from_dataset)


def test_ids_limit_and_sample_choose_rows(values: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("r9\nr1\n")
    chosen = {}
    for key, value in (("ids", ["r3", "r2"]), ("ids_file", str(tmp_path / "ids.txt")),
                       ("sample", {"size": 5}), ("limit", 4)):  # fmt: skip
        task = {**values["benchmarks"]["qa"], key: value}
        config = parse_config({**values, "benchmarks": {"qa": task}})
        chosen[key] = [row.id for row in benchmark_rows(config, "qa")]
    assert chosen["ids"] == ["r2", "r3"] and chosen["ids_file"] == ["r1", "r9"]
    assert len(chosen["sample"]) == 5 and chosen["limit"] == ["r0", "r1", "r2", "r3"]
    values["benchmarks"]["qa"].update(ids=["r1"], limit=3)
    with pytest.raises(UserError, match="ids and limit choose rows in two ways; give one"):
        parse_config(values)


def test_planning_6000_rows_is_fast_and_loads_no_heavy_library(
    values: dict[str, Any], tmp_path: Path
) -> None:
    rows = "".join(f'{{"question": "question {n}", "answer": ["a", "b"]}}\n' for n in range(6000))
    (tmp_path / "qa.jsonl").write_text(rows)
    (tmp_path / "shots.txt").write_text("Question: question 7\nAnswer: x\n")
    values["benchmarks"]["qa"]["shots"] = {"file": str(tmp_path / "shots.txt")}
    started = time.process_time()
    plan = Plan.of(values)
    plan.digests("qa", "both")
    assert time.process_time() - started < 0.5
    assert [n for n, row in enumerate(plan.prepared("qa").rows) if row.shot] == [7]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    code = (
        "import sys, yaml; from adafuse.workflow.plan import Plan;"
        f" Plan.of(yaml.safe_load(open({str(tmp_path / 'config.yaml')!r})));"
        " assert not {'torch', 'datasets', 'polars'} & sys.modules.keys()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0
