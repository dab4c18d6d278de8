"""Only what a change touches runs again: the whole plan of each case, job by job."""

import shutil
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

import pytest

from adafuse.benchmarks.shards import shard_of
from tests.support.hub_cache import COMMIT, cached_model

from .conftest import ROOT, SHARDS, Job, Workplace

pytestmark = pytest.mark.slow

BENCHMARKS = ("qa", "mt")
RUNS = ("llama", "adafuse", "hub")
FUSED = ("adafuse", "fixed_1")
NEW_COMMIT = COMMIT[::-1]
MEGABYTES = 8


@pytest.fixture(scope="module")
def whole(finished: Workplace, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """The finished workflow with a further run, of a model of the hub."""
    place = Workplace(tmp_path_factory.mktemp("whole") / "copy")
    shutil.copytree(finished.folder, place.folder, symlinks=True)
    cached_model(place.hub, "org/toy", str(ROOT / "adafuse/toy/models/qwen3"))
    model = {"path": "org/toy", "revision": COMMIT}
    place.configure(lambda config: config["models"].update(hub=model))
    run = {"method": "single", "models": ["hub"]}
    place.configure(lambda config: config["runs"].update(hub=run))
    place.run()
    return place


@pytest.fixture
def place(whole: Workplace, tmp_path: Path) -> Workplace:
    """A copy of the test's own."""
    shutil.copytree(whole.folder, tmp_path / "copy", symlinks=True)
    return Workplace(tmp_path / "copy")


def tables(benchmarks: Iterable[str], *names: str) -> set[Job]:
    """What is made of scores, and the report with the examples of the benchmarks."""
    made = {(name, ()) for name in (*names, "compare", "compare_runs", "report", "all")}
    return made | {("examples", (name,)) for name in benchmarks}


def scores(cells: Iterable[tuple[str, str]]) -> set[Job]:
    return {("score", ("strict", name, run)) for name, run in cells}


def decoding(benchmarks: Iterable[str], runs: Iterable[str], shards: Iterable[int]) -> set[Job]:
    """Decode jobs and all that follows from them."""
    benchmarks, runs = list(benchmarks), list(runs)
    cells = set(product(benchmarks, runs))
    jobs = {("decode", (*cell, str(shard))) for cell in cells for shard in shards}
    words = ["words_per_round"] if any(run in FUSED for _, run in cells) else []
    return jobs | {("merge", cell) for cell in cells} | scores(cells) | tables(benchmarks, *words)


def rows(benchmark: str, shards: Iterable[int]) -> set[Job]:
    """What is made of a benchmark file."""
    files = {("shard", (benchmark, str(shard))) for shard in shards}
    return files | {("prepare", (benchmark,)), ("datasets", ())}


def one_row(identifier: str) -> set[Job]:
    shard = [shard_of(identifier, SHARDS)]
    return rows("qa", shard) | decoding(["qa"], RUNS, shard)


def edit(place: Workplace) -> str:
    lines = place.rows("qa")
    lines[4]["question"] = "Who painted the quiet lighthouse?"
    place.write_rows("qa", lines)
    return str(lines[4]["id"])


def insert(place: Workplace) -> str:
    lines = place.rows("qa")
    lines.insert(2, {**lines[2], "id": "new", "question": "Where is the harbour?"})
    place.write_rows("qa", lines)
    return "new"


def test_without_a_change_nothing_runs(place: Workplace) -> None:
    assert place.plan().all == set()


@pytest.mark.parametrize("change", [edit, insert])
def test_a_row_runs_its_own_shard(place: Workplace, change: Callable[[Workplace], str]) -> None:
    wanted = one_row(change(place))
    assert place.plan().all == wanted


@pytest.mark.parametrize("change", [edit, insert])
def test_a_row_of_a_large_file_runs_its_own_shard(
    place: Workplace, change: Callable[[Workplace], str]
) -> None:
    lines = place.rows("qa")
    for line in lines:
        line["article"] = "x" * (MEGABYTES * 2**20 // len(lines))
    place.write_rows("qa", lines)
    assert (place.folder / "qa.jsonl").stat().st_size > MEGABYTES * 10**6
    assert place.plan().all == set(), "what no prompt holds runs nothing"
    wanted = one_row(change(place))
    assert place.plan().all == wanted
    place.run()
    assert place.plan().all == set()


def test_a_new_benchmark_runs_every_run_on_it_alone(place: Workplace) -> None:
    shutil.copy(place.folder / "qa.jsonl", place.folder / "new.jsonl")
    task = {**place.config()["benchmarks"]["qa"], "source": {"file": "new.jsonl"}}
    place.configure(lambda config: config["benchmarks"].update(new=task))
    shards = range(SHARDS)
    assert place.plan().all == rows("new", shards) | decoding(["new"], RUNS, shards)


def test_a_new_method_runs_alone(place: Workplace) -> None:
    new = {"method": "fixed_length", "models": ["mistral", "llama"], "options": {"words": 1}}
    place.configure(lambda config: config["runs"].update(fixed_1=new))
    assert place.plan().all == decoding(BENCHMARKS, ["fixed_1"], range(SHARDS))


def test_another_parameter_runs_the_run_that_has_it(place: Workplace) -> None:
    place.configure(lambda config: config["runs"]["adafuse"]["options"].update(tau=0.2))
    assert place.plan().all == decoding(BENCHMARKS, ["adafuse"], range(SHARDS))


def test_another_revision_of_a_model_runs_the_runs_that_use_it(place: Workplace) -> None:
    cached_model(place.hub, "org/toy", str(ROOT / "adafuse/toy/models/qwen3"), NEW_COMMIT)
    assert place.plan().all == set(), "the commit is pinned"
    place.configure(lambda config: config["models"]["hub"].update(revision=NEW_COMMIT))
    assert place.plan().all == decoding(BENCHMARKS, ["hub"], range(SHARDS))


def test_another_decoder_runs_all_runs_and_makes_no_rows_again(place: Workplace) -> None:
    assert place.plan(ENGINE_VERSION=99).all == decoding(BENCHMARKS, RUNS, range(SHARDS))


def test_another_scorer_decodes_nothing(place: Workplace) -> None:
    assert place.plan(SCORING_VERSION=99).all == scores(product(BENCHMARKS, RUNS)) | tables(
        BENCHMARKS
    )


def test_another_metric_scores_its_benchmark_and_decodes_nothing(place: Workplace) -> None:
    place.configure(lambda config: config["benchmarks"]["qa"].update(scorer="nq"))
    assert place.plan().all == scores(product(["qa"], RUNS)) | tables(["qa"])


def test_other_allowed_errors_run_nothing(place: Workplace) -> None:
    place.configure(lambda config: config["decode"].update(max_error_share=0.5))
    assert place.plan().all == set()


def test_other_results_than_the_plan_s_run_again_without_snakemake_s_own_records(
    place: Workplace,
) -> None:
    place.configure(lambda config: config["runs"]["adafuse"]["options"].update(tau=0.2))
    shutil.rmtree(place.folder / ".snakemake")
    assert place.plan().all == decoding(BENCHMARKS, ["adafuse"], range(SHARDS))
    place.run()
    assert place.plan().all == set()


def test_results_of_the_plan_are_kept_without_snakemake_s_own_records(place: Workplace) -> None:
    shutil.rmtree(place.folder / ".snakemake")
    assert place.plan().all == set()
