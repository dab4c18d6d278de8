"""What a change makes another job: asked of the plan, which gives each rule its parameters.

That Snakemake runs what has other parameters, and all that follows from it, is asserted in
test_incremental.
"""

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from adafuse.benchmarks.shards import shard_of
from adafuse.workflow import digest as digests
from adafuse.workflow.plan import Plan
from adafuse.workflow.steps import STEPS
from tests.support.hub_cache import COMMIT, cached_model

from .conftest import ROOT, SHARDS, Job, Workplace, unfinished

RUNS = ("llama", "adafuse", "hub")
HUB_MODEL = {"path": "org/toy", "revision": COMMIT}
SHOTS = "Be brief.\n\nQuestion: Who sings?\nAnswer: Ada\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """A workflow of three runs, one of them of a model of the hub; it is the current folder."""
    place = unfinished(tmp_path)
    cached_model(place.hub, "org/toy", str(ROOT / "adafuse/toy/models/qwen3"))
    place.configure(lambda config: config["models"].update(hub=HUB_MODEL))
    run = {"method": "single", "models": ["hub"]}
    place.configure(lambda config: config["runs"].update(hub=run))
    monkeypatch.chdir(tmp_path)
    return place


def keys(place: Workplace) -> dict[Job, str]:
    """What the plan says of each job."""
    plan = Plan.of(place.config())
    return {tuple(job): plan.key(job) for job in plan.all_jobs()}


FOLLOWS = {
    "merge": {"decode"}, "score": {"merge", "prepare"}, "examples": {"score", "prepare"},
    "words_per_round": {"merge"}, "datasets": {"prepare"}, "compare": {"score"}, "audit": {"score"},
    "compare_runs": {"score"}, "case_study": {"score", "merge", "prepare"},
    "report": {"compare", "compare_runs", "datasets"},
}  # fmt: skip
"""What a rule reads the results of."""


def wildcards(step: str, cell: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(STEPS[step].wildcards, cell, strict=True))


def follows(job: Job, other: Job) -> bool:
    """Whether a job reads what another one writes."""
    mine, theirs = wildcards(*job), wildcards(*other)
    if job[0] == "words_per_round" and theirs.get("run") in ("llama", "hub"):
        return False  # of one model
    if job[0] == "case_study" and theirs.get("protocol") == "published":
        return False
    shared = mine.keys() & theirs.keys()
    return other[0] in FOLLOWS.get(job[0], ()) and all(mine[w] == theirs[w] for w in shared)


@pytest.fixture
def changed(place: Workplace) -> Callable[[], set[Job]]:
    """Say which jobs are others than before the test, or new, and read nothing that is so.

    Asserted here: whatever reads the results of another job is another job itself.
    """
    before = keys(place)

    def first() -> set[Job]:
        now = keys(place)
        jobs = {job for job, key in now.items() if before.get(job) != key}
        due = {job for job in now if any(follows(job, other) for other in jobs)}
        assert due <= jobs
        return jobs - due

    return first


Changed = Callable[[], set[Job]]


def decodes(benchmark: str, runs: tuple[str, ...] = RUNS) -> set[Job]:
    shards = map(str, range(SHARDS[benchmark]))
    return {("decode", (benchmark, run, shard)) for run, shard in product(runs, shards)}


def one_shard(identifier: str) -> set[Job]:
    """What comes of other prompts in the shard of a row."""
    shard = str(shard_of(identifier, SHARDS["qa"]))
    made = {("prepare", ("qa",)), ("shard", ("qa", shard))}
    return made | {("decode", ("qa", run, shard)) for run in RUNS}


def test_without_a_change_every_job_is_the_same(place: Workplace, changed: Changed) -> None:
    for path in place.folder.rglob("*"):
        path.touch()
    assert changed() == set()


def test_an_edited_row_is_another_job_for_its_shard_of_each_run(
    place: Workplace, changed: Changed
) -> None:
    rows = place.rows("qa")
    rows[4]["question"] = "Who painted the quiet lighthouse?"
    place.write_rows("qa", rows)
    assert changed() == one_shard(rows[4]["id"])


def test_an_inserted_row_is_one_for_its_shard(place: Workplace, changed: Changed) -> None:
    rows = place.rows("qa")
    rows.insert(2, {"id": "new", "question": "Where is the harbour?", "answer": "here"})
    place.write_rows("qa", rows)
    assert changed() == one_shard("new")


def test_a_removed_row_is_one_for_its_shard(place: Workplace, changed: Changed) -> None:
    rows = place.rows("qa")
    shards = [shard_of(row["id"], SHARDS["qa"]) for row in rows]
    gone = next(index for index, shard in enumerate(shards) if shards.count(shard) > 1)
    identifier = rows.pop(gone)["id"]
    place.write_rows("qa", rows)
    assert changed() == one_shard(identifier)


def test_a_corrected_answer_decodes_nothing(place: Workplace, changed: Changed) -> None:
    rows = place.rows("qa")
    rows[0]["answer"] = ["another answer"]
    place.write_rows("qa", rows)
    assert changed() == {("prepare", ("qa",))}


REPORT = {("report", ())}
"""The report says of the configuration whatever may matter, so it is made again."""


@pytest.mark.parametrize(
    ("change", "jobs"),
    [
        (
            lambda config: config["runs"]["adafuse"]["options"].update(tau=0.2),
            decodes("qa", ("adafuse",)) | decodes("mt", ("adafuse",)),
        ),
        (lambda config: config["runs"]["adafuse"]["options"].update(max_words=3), REPORT),
        (lambda config: config.update(note="for a look"), {("compare", ())}),
        (lambda config: config["decode"].update(device="auto", gpu=1), set()),
        (lambda config: config["decode"].update(max_error_share=0.5), set()),
        (lambda config: config.update(cluster={"runtime": 45, "uniform": True}), set()),
        (lambda config: config["runs"]["adafuse"].update(cluster={"gpu": 2}), set()),
        (
            lambda config: config["benchmarks"]["qa"].update(scorer="nq"),
            {("score", ("strict", "qa", run)) for run in RUNS},
        ),
        (
            lambda config: config.update(protocols=["strict", "published"]),
            {("score", ("published", *cell)) for cell in product(SHARDS, RUNS)},
        ),
    ],
    ids=[
        *("tau", "a default", "note", "device", "error share", "cluster", "cluster of a run"),
        *("scorer", "protocol"),
    ],
)
def test_a_setting_changes_the_jobs_that_depend_on_it(
    place: Workplace, changed: Changed, change: Callable[[dict[str, Any]], object], jobs: set[Job]
) -> None:
    place.configure(change)
    assert changed() == jobs


def test_weights_of_the_same_size_and_time_change_the_runs_that_use_them(
    place: Workplace, changed: Changed
) -> None:
    weights = place.folder / "models/mistral/model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    (place.folder / "others").write_bytes(data)
    shutil.copystat(weights, place.folder / "others")
    shutil.copy2(place.folder / "others", weights)
    assert changed() == decodes("qa", ("adafuse",)) | decodes("mt", ("adafuse",))


def test_changed_weights_of_a_model_change_the_runs_that_use_it(
    place: Workplace, changed: Changed
) -> None:
    weights = place.folder / "models/other/model.safetensors"
    shutil.copytree(place.folder / "models/mistral", weights.parent)
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    place.configure(lambda config: config["models"]["mistral"].update(path="models/other"))
    assert changed() == decodes("qa", ("adafuse",)) | decodes("mt", ("adafuse",))


def test_another_revision_of_a_model_changes_the_runs_that_use_it(
    place: Workplace, changed: Changed
) -> None:
    cached_model(place.hub, "org/toy", str(ROOT / "adafuse/toy/models/qwen3"), COMMIT[::-1])
    assert changed() == set(), "the commit is pinned"
    place.configure(lambda config: config["models"]["hub"].update(revision=COMMIT[::-1]))
    assert changed() == decodes("qa", ("hub",)) | decodes("mt", ("hub",))


def test_another_decoder_changes_all_runs_and_no_rows(
    changed: Changed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "ENGINE_VERSION", 99)
    assert changed() == decodes("qa") | decodes("mt")


def test_another_scoring_changes_all_scores_and_decodes_nothing(
    changed: Changed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "SCORING_VERSION", 99)
    assert changed() == {("score", ("strict", *cell)) for cell in product(SHARDS, RUNS)}


def test_another_scoring_by_one_scorer_changes_the_scores_of_its_benchmarks(
    changed: Changed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(digests.SCORER_VERSIONS, "squad", 99)
    assert changed() == {("score", ("strict", "qa", run)) for run in RUNS}


def test_the_order_of_benchmarks_and_runs_is_that_of_the_tables(
    place: Workplace, changed: Changed
) -> None:
    def reverse(section: str) -> Callable[[dict[str, Any]], object]:
        return lambda config: config.update({section: dict(reversed(config[section].items()))})

    place.configure(reverse("benchmarks"))
    scores = {("compare", ()), ("compare_runs", ()), ("case_study", ())}
    assert changed() == scores | {("datasets", ()), ("words_per_round", ())}
    place.configure(reverse("benchmarks"))
    assert changed() == set()
    place.configure(reverse("runs"))
    examples = {("examples", (name,)) for name in SHARDS}
    assert changed() == scores | examples


def test_a_new_run_leaves_the_others_alone(place: Workplace, changed: Changed) -> None:
    new = {"method": "fixed_length", "models": ["mistral", "llama"], "options": {"words": 1}}
    place.configure(lambda config: config["runs"].update(fixed_1=new))
    jobs = changed()
    assert {job for job in jobs if job[0] in ("prepare", "shard", "decode")} == (
        decodes("qa", ("fixed_1",)) | decodes("mt", ("fixed_1",))
    )


def test_a_new_benchmark_leaves_the_others_alone(place: Workplace, changed: Changed) -> None:
    task = {**place.config()["benchmarks"]["qa"]}
    place.configure(lambda config: config["benchmarks"].update(new=task))
    jobs = changed()
    assert {job[1][0] for job in jobs} == {"new"}
    assert len([job for job in jobs if job[0] == "decode"]) == SHARDS["qa"] * len(RUNS)


@pytest.fixture
def with_shots(place: Workplace) -> Workplace:
    """A benchmark with few-shot examples."""
    (place.folder / "shots.txt").write_text(SHOTS)
    place.configure(lambda config: config["benchmarks"]["qa"].update(shots={"file": "shots.txt"}))
    return place


def test_shots_are_part_of_every_prompt_of_their_benchmark(
    changed: Changed, with_shots: Workplace
) -> None:
    assert {job for job in changed() if job[0] == "decode"} == decodes("qa")


def test_another_layout_or_another_example_is_another_prompt(
    with_shots: Workplace, changed: Changed
) -> None:
    published = {"prompt_layout": "published"}
    with_shots.configure(lambda config: config["benchmarks"]["qa"].update(published))
    assert {job for job in changed() if job[0] == "decode"} == decodes("qa")
    with_shots.configure(lambda config: config["benchmarks"]["qa"].update(prompt_layout="strict"))
    (with_shots.folder / "shots.txt").write_text(SHOTS.rstrip() + "\n\n")
    assert changed() == set(), "strict does not see newlines at the end of the file"
    (with_shots.folder / "shots.txt").write_text(SHOTS.replace("Ada", "Bo"))
    assert {job for job in changed() if job[0] == "decode"} == decodes("qa")


def test_keeping_worked_examples_in_the_score_decodes_nothing(
    with_shots: Workplace,
) -> None:
    rows = with_shots.rows("qa")
    rows[4]["question"] = "Who sings"
    with_shots.write_rows("qa", rows)
    before = keys(with_shots)
    with_shots.configure(lambda config: config["benchmarks"]["qa"].update(exclude_shots=False))
    after = keys(with_shots)
    different = {step for step, cell in after if after[step, cell] != before[step, cell]}
    assert different >= {"prepare", "score"} and not different & {"shard", "decode", "merge"}


def test_a_benchmark_moved_to_a_file_of_its_own_is_the_same(
    place: Workplace, changed: Changed
) -> None:
    task = place.config()["benchmarks"]["qa"]
    (place.folder / "tasks").mkdir()
    task["source"]["file"] = "../qa.jsonl"
    shards = task.pop("shards")
    (place.folder / "tasks/qa.yaml").write_text(yaml.safe_dump(task))
    used = {"use": "tasks/qa.yaml", "shards": shards}
    place.configure(lambda config: config["benchmarks"].update(qa=used))
    assert changed() <= REPORT
