"""Case studies: which rows are chosen, and what the page shows of them."""

from dataclasses import replace

import pytest

from adafuse.benchmarks.shards import PreparedRow, write_prepared
from adafuse.config.config import Config
from adafuse.config.experiments import MainConfig
from adafuse.metrics.scorer import Metric
from adafuse.records.result import Candidate, Result, Round
from adafuse.report.case_study import case_studies, case_study_page
from adafuse.report.failures import Failure, Given
from adafuse.storage.parquet import write_rows
from adafuse.storage.traces import result_columns
from adafuse.workflow.decode import TRACE_FIELDS
from tests.report.conftest import World

RUNS = ("m", "l", "both")


def config(world: World, *runs: str, study: tuple[str, ...] = ()) -> Config:
    main = MainConfig(runs=runs, benchmarks=("qa",), study=study)
    figure = {"title": "A figure", "kind": "scores", "benchmarks": ["qa"], "runs": ["m"]}
    made = world.config(["qa"], figure)
    return made.model_copy(update={"main": main})


@pytest.fixture
def results(world: World) -> World:
    """Five rows: all models get r0 right, none r3 or r4; the ensemble gets r2 to r4 right."""
    for run, right in zip(RUNS, ("10100", "11000", "00111"), strict=True):
        world.score("qa", run, right)
        world.trace("qa", run, (1.0,) * 5)
    rows = [PreparedRow(f"r{n}", f"p{n}", f"Who, {n}?", ("An|n", "Ann")) for n in range(5)]
    write_prepared(world.root / "benchmarks/qa/rows.jsonl", rows)
    spans = (Candidate(" Ann", False, (1,), (0.25, 0.5), 0.375),
             Candidate(" Bo_b\n", True, (0,), (1.0, 2.0), 1.5))  # fmt: skip
    result = Result(" Ann", "eos", (Round(spans, 0, 1, ()),) * 2, (1,), (1,), (1,), 1.0)
    names = {"benchmark": "qa", "run": "both", "shard": 0, "prompt_sha256": "0"}
    texts = [replace(result, text=f" Ann {n}") for n in range(5)]
    decoded = [names | {"id": f"r{n}"} | result_columns(each) for n, each in enumerate(texts)]
    write_rows(world.root / "traces/qa/both.parquet", TRACE_FIELDS, decoded, {"digest": "x"})
    return world


def test_the_first_row_that_only_the_ensemble_gets_right_and_the_first_it_alone_gets_wrong(
    results: World,
) -> None:
    page, count = case_study_page(config(results, *RUNS))
    assert count == 2
    above, below = page.split("\n## ")[1:]
    assert above.splitlines() == [
        "qa: both is right, all of its models are wrong", "",
        "Row 4, r3.", "",
        "Prompt: Who, 3?", "",
        "Gold answer: An\\|n or Ann", "",
        "| run | exact match | answer | scored |", "| --- | --- | --- | --- |",
        "| m | wrong | x |  |", "| l | wrong | x |  |", "| both | right | Ann 3 | x |", "",
        "Rounds of both:", "",
        "| round |  | candidate | by | NLL m | NLL l | F |",
        "| --- | --- | --- | --- | ---: | ---: | ---: |",
        *[
            line
            for number in (1, 2)
            for line in (
                f"| {number} | =\\> | Ann | l | 0.250 | 0.500 | 0.375 |",
                "|  |  | Bo\\_b\\\\n\\<END\\> | m | 1.000 | 2.000 | 1.500 |",
            )
        ],
    ]  # fmt: skip
    assert below.splitlines()[:3] == [
        "qa: both is wrong, all of its models are right", "", "Row 1, r0.",
    ]  # fmt: skip


def test_ensembles_that_cannot_be_shown_are_named_with_the_reason(results: World) -> None:
    page, count = case_study_page(config(results, "m", "both"))
    assert count == 0 and "both: no run of method single uses l.\n" in page
    results.score("qa", "both", "11100")
    page, count = case_study_page(config(results, *RUNS))
    assert count == 0 and "No row of qa sets both apart.\n" in page


def test_of_several_ensembles_only_those_under_study_are_shown(results: World) -> None:
    results.score("qa", "both_b3", "00111")
    results.trace("qa", "both_b3", (1.0,) * 5)
    page, count = case_study_page(config(results, *RUNS, "both_b3", study=("both",)))
    assert count == 2 and "both\\_b3 is" not in page
    assert "| both\\_b3 | right | x |  |" in page, "its answers are"


@pytest.mark.parametrize(("lower", "rows"), [(False, (3, 1)), (True, (1, 3))])
def test_where_no_row_is_right_or_wrong_the_largest_margin_counts(
    lower: bool, rows: tuple[int, int]
) -> None:
    values = {1: (30.0, 20.0, 10.0), 2: (30.0, 20.0, 35.0), 3: (30.0, 20.0, 50.0), 4: (1, 2, 1.5)}
    found = [
        Failure(n, f"r{n}", "?", ("x",), {
            run: Given("x", "x", value, right=False)
            for run, value in zip(RUNS, each, strict=True)
        })
        for n, each in values.items()
    ]  # fmt: skip
    metric = Metric("ter", "TER", higher_is_better=not lower)
    above, below = case_studies(found, metric, "both", ["m", "l"])
    assert (above.row.row, below.row.row) == rows
    assert {above.margin, below.margin} == {20.0, 10.0}
