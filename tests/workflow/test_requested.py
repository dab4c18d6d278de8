from pathlib import Path

import pytest

from adafuse.config.reading import read_config
from adafuse.workflow.plan import Plan
from adafuse.workflow.steps import Job, answer_traces

MODELS = {"mistral", "llama", "qwen3", "internlm3"}


@pytest.fixture(scope="module")
def config():
    """The toy configuration."""
    return read_config(Path(__file__).parents[2] / "config/toy.yaml")


def requested(config, runs, **changes):
    main = config.main.model_copy(update={"runs": runs, "benchmarks": ["toy_qa"]})
    return set(Plan(config.model_copy(update={"main": main, **changes})).requested_cells())


def test_the_main_table_is_requested_and_nothing_else(config):
    assert requested(config, ["adafuse"]) == {("toy_qa", "adafuse")}


def test_so_are_the_runs_that_a_run_starts_from(config):
    assert requested(config, ["rerank"]) == {("toy_qa", r) for r in ("rerank", "mistral", "llama")}


def test_so_are_the_candidates_and_the_scores_that_a_choice_reads(config):
    found = requested(config, ["development_pair"])
    assert {run for name, run in found if name == "toy_qa_dev"} == MODELS
    assert len({run for name, run in found if name == "toy_qa"}) == 6
    assert {name for name, _ in found} == {"toy_qa", "toy_qa_dev"}


def test_so_are_the_experiments_if_they_are_targets(config):
    found = requested(config, ["adafuse"], targets=("tables", "experiments"))
    for experiment in config.experiments.values():
        decoded = set(experiment.runs) - {"best_of", "best_pair", "development_pair"}
        assert {(name, run) for name in experiment.benchmarks for run in decoded} <= found


def test_what_shows_costs_reads_the_answers_that_a_run_starts_from(config):
    section = config.experiments["table_1"].model_copy(update={"kind": "frontier"})
    section = section.model_copy(update={"runs": ("rerank",), "benchmarks": ("toy_qa",)})
    main = config.main.model_copy(update={"runs": ["rerank"], "benchmarks": ["toy_qa"]})
    changed = {"main": main, "experiments": {"table_1": section}}
    plan = Plan(config.model_copy(update=changed))
    for job in (Job.of("experiment", "table_1"), Job.of("report")):
        traces = [each.values[1] for each in plan.reads(job) if each.step == "merge"]
        assert sorted(traces) == ["llama", "mistral", "rerank"]


def test_so_does_a_choice_that_may_take_such_a_run(config):
    chosen = config.runs["best_pair"].model_copy(
        update={"models": ("mistral", "llama"), "options": {"runs": ["rerank"]}}
    )
    changed = config.model_copy(update={"runs": {**config.runs, "best_pair": chosen}})
    traces = answer_traces(changed, [("toy_qa", "best_pair"), ("toy_qa", "adafuse")])
    assert [each.values[1] for each in traces] == ["mistral", "llama"]
