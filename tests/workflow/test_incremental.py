"""Only what a change touches runs again: Snakemake's whole plan of a few cases, job by job.

Which jobs are others after a change is asserted in test_reruns without Snakemake.
"""

import csv
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest

from adafuse.benchmarks.shards import shard_of
from adafuse.storage.parquet import read_rows

from .conftest import SHARDS, Job, Workplace

RUNS = ("llama", "adafuse")
MEGABYTES = 8
AFTER: dict[str, tuple[str, ...]] = {"merge": (), "score": ("strict",)}
"""Rules of a benchmark and a run that follow from decoding, and their first wildcards."""


def tables(benchmarks: Iterable[str], *names: str) -> set[Job]:
    """What is made of scores, and the report with the examples of the benchmarks."""
    made = {(name, ()) for name in (*names, "compare", "compare_runs", "report", "all")}
    return made | {("examples", (name,)) for name in benchmarks}


def decoding(benchmarks: Iterable[str], runs: Iterable[str], *shards: int) -> set[Job]:
    """Decode jobs, of all shards unless some are named, and all that follows from them."""
    benchmarks = list(benchmarks)
    cells = list(product(benchmarks, runs))
    jobs = {
        ("decode", (name, run, str(shard)))
        for name, run in cells
        for shard in shards or range(SHARDS[name])
    }
    after = {(rule, (*before, *cell)) for rule, before in AFTER.items() for cell in cells}
    return jobs | after | tables(benchmarks, "words_per_round")


def test_an_edited_row_of_a_large_file_runs_its_own_shard_and_what_depends_on_it(
    place: Workplace,
) -> None:
    for pattern in ("*.jsonl", "models/*/*", "results/benchmarks/**/*", "results/traces/**/*"):
        for path in place.folder.glob(pattern):
            path.touch()
    rows = place.rows("qa")
    for row in rows:
        row["article"] = "x" * (MEGABYTES * 2**20 // len(rows))
    place.write_rows("qa", rows)
    assert (place.folder / "qa.jsonl").stat().st_size > MEGABYTES * 10**6
    assert place.plan().all == set(), "neither touched files nor what no prompt holds"
    rows[4]["question"] = "Who painted the quiet lighthouse?"
    place.write_rows("qa", rows)
    shard = shard_of(rows[4]["id"], SHARDS["qa"])
    files = {("shard", ("qa", str(shard))), ("prepare", ("qa",)), ("datasets", ())}
    assert place.plan().all == files | decoding(["qa"], RUNS, shard)


def test_a_lost_trace_is_decoded_again_and_nothing_else(place: Workplace) -> None:
    for lost in ("traces/qa/adafuse/1.parquet", "traces/qa/adafuse.parquet"):
        (place.folder / "results" / lost).unlink()
    for lost in ("scores/strict/qa/adafuse.json", "tables/main.csv"):
        (place.folder / "results" / lost).unlink()
    assert place.plan().decodes == {("qa", "adafuse", 1)}


def test_a_plan_writes_nothing(place: Workplace) -> None:
    def files() -> dict[Path, tuple[int, int]]:
        found = {path: path.stat() for path in (place.folder / "results").rglob("*")}
        return {path: (status.st_mtime_ns, status.st_size) for path, status in found.items()}

    place.configure(lambda config: config["benchmarks"]["qa"].update(max_new_tokens=7))
    shutil.rmtree(place.folder / ".snakemake")
    before = files()
    assert place.plan().decodes
    assert files() == before


def test_a_lost_configuration_comes_back_with_the_table(place: Workplace) -> None:
    (place.folder / "results/config.json").unlink()
    assert place.plan().all == {("compare", ()), ("report", ()), ("all", ())}


def test_a_dry_run_says_in_words_why_jobs_run_again(place: Workplace) -> None:
    place.configure(lambda config: config["runs"]["adafuse"]["options"].update(tau=0.2))
    rows = place.rows("mt")
    rows[4]["answer"] = "another"
    place.write_rows("mt", rows)
    said = place.snakemake("--dry-run").stdout
    reasons = Counter(re.findall(r"^    reason: (.*)$", said, re.MULTILINE))
    assert reasons["option tau 0.7 -> 0.2"] == sum(SHARDS.values())
    assert reasons[f"gold answer of {rows[4]['id']!r}"] == 1
    assert "Forced execution" not in said, "what Snakemake itself would say"


@pytest.mark.soak
def test_other_results_than_the_plan_s_run_again_without_snakemake_s_own_records(
    place: Workplace,
) -> None:
    place.configure(lambda config: config["runs"]["adafuse"]["options"].update(tau=0.2))
    shutil.rmtree(place.folder / ".snakemake")
    assert place.plan().all == decoding(SHARDS, ["adafuse"])
    rows = place.rows("qa")
    rows[4]["question"] = "Who painted the quiet lighthouse?"
    place.write_rows("qa", rows)
    place.run()
    assert place.plan().all == set()
    trace = read_rows(place.folder / "results/traces/qa/adafuse.parquet", ["id"])
    assert {row["id"] for row in trace} == {row["id"] for row in rows}


def test_the_table_has_a_row_per_run_and_the_columns_of_each_benchmark(
    finished: Workplace,
) -> None:
    rows = list(csv.DictReader((finished.folder / "results/tables/main.csv").open()))
    ends = ("", "_low", "_high", "_n", "_cut", "_failed")
    cells = [f"{name}{end}" for name in ("qa", "mt") for end in ends]
    averages = ["macro_average", "macro_average_failed"]
    assert list(rows[0]) == ["run", "method", "models", *cells, *averages]
    assert [row["run"] for row in rows] == ["llama", "adafuse"]
    assert {row["qa_n"] for row in rows} == {"9"}
