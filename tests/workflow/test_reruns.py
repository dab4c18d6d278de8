"""What runs again after a change, taken from Snakemake's own plan."""

import csv
from collections import Counter
from pathlib import Path

import pytest
import yaml

from adafuse.benchmarks.shards import shard_of
from adafuse.workflow.traces import read_rows

from .conftest import REPORT_ONLY, SHARDS, Workplace

pytestmark = pytest.mark.slow

RUNS = ("llama", "adafuse")


def one_shard_of_each_run(identifier: str) -> set[tuple[str, str, int]]:
    return {("qa", run, shard_of(identifier, SHARDS)) for run in RUNS}


def test_a_finished_workflow_has_nothing_to_do(place: Workplace) -> None:
    assert place.plan().jobs == Counter()


def test_touching_files_runs_nothing(place: Workplace) -> None:
    for pattern in ("*.jsonl", "models/*/*", "results/benchmarks/**/*", "results/traces/**/*"):
        for path in place.folder.glob(pattern):
            path.touch()
    assert place.plan().jobs == Counter()


def test_an_edited_row_runs_its_shard_of_each_run_and_what_depends_on_it(place: Workplace) -> None:
    rows = place.rows("qa")
    rows[4]["question"] = "Who painted the quiet lighthouse?"
    place.write_rows("qa", rows)
    plan = place.plan()
    assert plan.decodes == one_shard_of_each_run(rows[4]["id"])
    assert plan.jobs == Counter(
        prepare=1, shard=1, decode=2, merge=2, score=2, compare=1, compare_runs=1,
        words_per_round=1, datasets=1, examples=1, report=1, all=1,
    )  # fmt: skip
    place.run()
    assert place.plan().jobs == Counter()
    trace = read_rows(place.folder / "results/traces/qa/adafuse.parquet", ["id"])
    assert {row["id"] for row in trace} == {row["id"] for row in rows}


def test_an_inserted_row_runs_its_shard_of_each_run(place: Workplace) -> None:
    rows = place.rows("qa")
    rows.insert(2, {"id": "new", "question": "Where is the harbour?", "answer": "here"})
    place.write_rows("qa", rows)
    assert place.plan().decodes == one_shard_of_each_run("new")


def test_a_removed_row_runs_its_shard_of_each_run(place: Workplace) -> None:
    rows = place.rows("qa")
    gone = next(row for row in rows if _shard_stays_filled(rows, row["id"]))
    place.write_rows("qa", [row for row in rows if row is not gone])
    assert place.plan().decodes == one_shard_of_each_run(gone["id"])


def _shard_stays_filled(rows: list[dict[str, str]], identifier: str) -> bool:
    shard = shard_of(identifier, SHARDS)
    return sum(shard_of(row["id"], SHARDS) == shard for row in rows) > 1


def test_a_corrected_answer_is_scored_without_decoding(place: Workplace) -> None:
    rows = place.rows("qa")
    rows[0]["answer"] = ["another answer"]
    place.write_rows("qa", rows)
    assert place.plan().jobs == Counter(
        prepare=1, score=2, compare=1, compare_runs=1, datasets=1, examples=1, report=1, all=1
    )


def test_another_tau_runs_the_adafuse_runs_only(place: Workplace) -> None:
    place.configure(lambda config: config["runs"]["adafuse"]["options"].update(tau=0.2))
    plan = place.plan()
    assert {run for _, run, _ in plan.decodes} == {"adafuse"}
    assert plan.jobs == Counter(
        decode=6, merge=2, score=2, compare=1, compare_runs=1, words_per_round=1, examples=2,
        report=1, all=1,
    )  # fmt: skip


def test_naming_a_default_runs_no_decoding(place: Workplace) -> None:
    place.configure(lambda config: config["runs"]["adafuse"]["options"].update(max_words=3))
    assert place.plan().all == REPORT_ONLY


def test_asking_for_the_published_protocol_scores_without_decoding(place: Workplace) -> None:
    place.configure(lambda config: config.update(protocols=["strict", "published"]))
    assert place.plan().jobs == Counter(
        score=4, compare=1, compare_runs=1, audit=1, examples=2, report=1, all=1
    )
    place.run()
    assert place.plan().jobs == Counter()
    results = place.folder / "results"
    assert "## Published scorer" in (results / "tables/main.md").read_text()
    assert (results / "tables/main_published.csv").exists()
    outcomes = read_rows(results / "scores/published/qa/adafuse.outcomes.parquet")
    assert set(outcomes[0]) == {"id", "value", "hypothesis", "references"}
    assert len(outcomes) == 9


def test_changed_weights_of_a_model_run_the_runs_that_use_it(place: Workplace) -> None:
    weights = place.folder / "models/mistral/model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert {run for _, run, _ in place.plan().decodes} == {"adafuse"}


def test_a_new_run_leaves_the_others_alone(place: Workplace) -> None:
    new = {"method": "fixed_length", "models": ["mistral", "llama"], "options": {"words": 1}}
    place.configure(lambda config: config["runs"].update(fixed_1=new))
    assert {run for _, run, _ in place.plan().decodes} == {"fixed_1"}


def test_a_note_changes_the_table_only(place: Workplace) -> None:
    place.configure(lambda config: config.update(note="for a look"))
    assert place.plan().jobs == Counter(compare=1, report=1, all=1)


def test_another_place_to_run_decodes_nothing(place: Workplace) -> None:
    place.configure(lambda config: config["decode"].update(device="auto", gpu=1))
    assert place.plan().jobs == Counter()


def test_a_lost_trace_is_decoded_again_and_nothing_else(place: Workplace) -> None:
    for lost in ("traces/qa/adafuse/1.parquet", "traces/qa/adafuse.parquet"):
        (place.folder / "results" / lost).unlink()
    for lost in ("scores/strict/qa/adafuse.json", "tables/main.csv"):
        (place.folder / "results" / lost).unlink()
    assert place.plan().decodes == {("qa", "adafuse", 1)}


def test_a_trace_copied_from_elsewhere_is_refused(place: Workplace) -> None:
    shards = place.folder / "results/traces/qa"
    (shards / "adafuse/0.parquet").write_bytes((shards / "llama/0.parquet").read_bytes())
    done = place.snakemake("--forcerun", "merge")
    assert done.returncode != 0
    assert "holds results of another configuration" in done.stdout + done.stderr


def test_the_table_has_a_row_per_run_and_the_columns_of_each_benchmark(
    finished: Workplace,
) -> None:
    path = Path(finished.folder, "results/tables/main.csv")
    rows = list(csv.DictReader(path.open()))
    cells = [f"{name}{end}" for name in ("qa", "mt") for end in ("", "_low", "_high", "_n")]
    assert list(rows[0]) == ["run", "method", "models", *cells, "macro_average"]
    assert [row["run"] for row in rows] == ["llama", "adafuse"]
    assert {row["qa_n"] for row in rows} == {"9"}


SHOTS = "Be brief.\n\nQuestion: Who sings?\nAnswer: Ada\n"


def with_shots(place: Workplace) -> None:
    (place.folder / "shots.txt").write_text(SHOTS)
    place.configure(lambda config: config["benchmarks"]["qa"].update(shots={"file": "shots.txt"}))


def test_shots_are_part_of_every_prompt_of_their_benchmark(place: Workplace) -> None:
    with_shots(place)
    plan = place.plan()
    assert {(name, run) for name, run, _ in plan.decodes} == {("qa", run) for run in RUNS}
    assert plan.jobs["decode"] == SHARDS * len(RUNS)


def test_another_frame_or_another_example_decodes_its_benchmark_again(place: Workplace) -> None:
    with_shots(place)
    place.run()
    assert place.plan().jobs == Counter()
    place.configure(lambda config: config["benchmarks"]["qa"].update(frame="published"))
    assert place.plan().jobs["decode"] == SHARDS * len(RUNS)
    place.configure(lambda config: config["benchmarks"]["qa"].update(frame="strict"))
    (place.folder / "shots.txt").write_text(SHOTS.rstrip() + "\n\n")
    assert place.plan().jobs == Counter(), "strict does not see newlines at the end of the file"
    (place.folder / "shots.txt").write_text(SHOTS.replace("Ada", "Bo"))
    assert {name for name, _, _ in place.plan().decodes} == {"qa"}


def test_keeping_worked_examples_in_the_score_decodes_nothing(place: Workplace) -> None:
    with_shots(place)
    rows = place.rows("qa")
    rows[4]["question"] = "Who sings"
    place.write_rows("qa", rows)
    place.run()
    place.configure(lambda config: config["benchmarks"]["qa"].update(exclude_shots=False))
    plan = place.plan()
    assert not plan.decodes
    assert plan.jobs["prepare"] == 1 and plan.jobs["score"] == len(RUNS)


def test_a_benchmark_moved_to_a_file_of_its_own_runs_nothing(place: Workplace) -> None:
    task = place.config()["benchmarks"]["qa"]
    (place.folder / "tasks").mkdir()
    task["source"]["file"] = "../qa.jsonl"
    shards = task.pop("shards")
    (place.folder / "tasks/qa.yaml").write_text(yaml.safe_dump(task))
    used = {"use": "tasks/qa.yaml", "shards": shards}
    place.configure(lambda config: config["benchmarks"].update(qa=used))
    assert place.plan().all <= REPORT_ONLY
