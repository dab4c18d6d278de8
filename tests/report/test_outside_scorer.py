"""A scorer of somebody else is known everywhere from its registration alone."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from adafuse.benchmarks.shards import PreparedRow, write_prepared
from adafuse.cli.options import scorer_names
from adafuse.config.reading import parse_config
from adafuse.errors import UserError
from adafuse.metrics.compare import Comparison, compare_runs
from adafuse.metrics.intervals import Estimate, mean
from adafuse.metrics.registry import SCORERS, metric_named, register_scorer
from adafuse.metrics.score import Score, ScoredRun, evaluate, write_outcomes
from adafuse.metrics.scorer import Example, Judgement, Metric, Outcome, Scorer, judge, share_right
from adafuse.report.contents import marks
from adafuse.report.experiments import _merits, _undominated
from adafuse.report.explorer import (
    Manifest,
    Question,
    RunEntry,
    RunFiles,
    write_benchmark,
    write_manifest,
)
from adafuse.report.main_table import build_table
from adafuse.report.pages import write_explorer
from adafuse.report.results import Results
from adafuse.report.tables import best_members_section, comparison_table, read_comparisons, to_csv
from adafuse.storage.parquet import write_table
from adafuse.storage.traces import RESULT_FIELDS, result_columns
from tests.support.browser import DESKTOP, Tab
from tests.support.configuration import values as configuration
from tests.support.made_up import FUSED
from tools.docs.tables import scorers_table

values = configuration


def contained(examples: Sequence[Example]) -> Judgement:
    outcomes = judge(examples, lambda each: any(answer in each.text for answer in each.answers))
    return Judgement(outcomes, {"contained": share_right(outcomes)})


def edits(examples: Sequence[Example]) -> Judgement:
    outcomes = tuple(Outcome(e.id, e.text, e.answers, float(len(e.text))) for e in examples)
    found = mean([outcome.value / 100 for outcome in outcomes])
    return Judgement(outcomes, {"edit_distance": found})


CONTAINED = Scorer(
    "contained", "share of texts that contain an answer",
    (Metric("contained", "answer contained", binary=True),), contained,
)  # fmt: skip
EDITS = Scorer(
    "edits", "characters to change",
    (Metric("edit_distance", "edit distance", higher_is_better=False),), edits,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for scorer in (CONTAINED, EDITS):
        register_scorer(scorer)
    yield
    for scorer in (CONTAINED, EDITS):
        del SCORERS[scorer.name]


def test_the_configuration_the_shell_and_the_documentation_know_it(values: dict[str, Any]) -> None:
    values["benchmarks"]["qa"]["scorer"] = "edits"
    assert parse_config(values).benchmarks["qa"].scorer == "edits"
    assert ("contained", "share of texts that contain an answer") in scorer_names("con")
    assert "| `edits` | characters to change | edit distance (`edit_distance`) |" in scorers_table()
    assert metric_named("contained").label == "answer contained"


def test_two_scorers_of_one_name_are_refused() -> None:
    with pytest.raises(UserError, match="two scorers 'contained'; rename one of them"):
        register_scorer(replace(CONTAINED, doc="another"))


@pytest.mark.parametrize("protocol", ["strict", "published"])
def test_without_published_rules_both_protocols_are_the_same(protocol: str) -> None:
    rows = [PreparedRow("a", "?", "?", ("Rome",)), PreparedRow("b", "?", "?", ("Oslo",))]
    texts = [{"id": "a", "text": "in Rome"}, {"id": "b", "text": "no idea"}]
    found = evaluate(rows, texts, "contained", protocol, benchmark="qa", run="x")
    assert (found.score.primary, found.score.main.value) == ("contained", 50)


def test_the_table_names_the_metric_and_its_best_is_the_lowest() -> None:
    def score(run: str, value: float) -> Score:
        metrics = {"edit_distance": Estimate(value, value, value)}
        return Score("qa", run, "strict", 4, 0, 0, 0, 0, metrics, "edit_distance", {})

    runs = {"near": ("single", ["m"]), "far": ("single", ["l"])}
    table = build_table(["qa"], runs, [score("near", 2.0), score("far", 9.0)], None)
    assert [row.cells[0].best for row in table.rows] == [True, False]
    assert (table.columns[0].metric.label, table.columns[0].n) == ("edit distance", 4)


def test_a_metric_of_a_known_name_but_of_another_kind_is_refused() -> None:
    odd = Metric("exact_match", "exact match", binary=True, higher_is_better=False)
    with pytest.raises(UserError, match="a metric 'exact_match' of another kind"):
        register_scorer(replace(CONTAINED, name="odd", metrics=(odd,)))
    assert "odd" not in SCORERS


def outcomes(run: str, values: Sequence[float], **changes: Any) -> ScoredRun:
    """The edit distances of a run; fewer are better."""
    rows = [PreparedRow(f"q{n}", "?", "?", ("x",)) for n in range(len(values))]
    texts = [{"id": f"q{n}", "text": "x" * round(value)} for n, value in enumerate(values)]
    found = evaluate(rows, texts, "edits", benchmark="qa", run=run)
    own = replace(found.score.main, value=float(np.mean(values)))
    return replace(found, score=replace(found.score, metrics={"edit_distance": own}, **changes))


RUNS = {"m": ("single", ["m"]), "l": ("single", ["l"]), "both": ("adafuse", ["m", "l"])}
WORSE = {"m": [20, 30] * 40, "l": [40, 50] * 40, "both": [60, 90, 70, 80] * 20}
BETTER = WORSE | {"both": [6, 9, 7, 8] * 20}


def compared(values: dict[str, list[int]]) -> list[Comparison]:
    return compare_runs(RUNS, [outcomes(run, each) for run, each in values.items()])


def test_only_the_better_run_has_the_marks_where_lower_is_better() -> None:
    assert marks(compared(BETTER)) == {("strict", "qa", "both"): "*†"}
    assert marks(compared(WORSE)) == {}
    stored = read_comparisons(to_csv(comparison_table(compared(BETTER), {})))
    assert marks(stored) == {("strict", "qa", "both"): "*†"}


def test_gains_the_best_member_and_the_best_baseline_are_those_of_the_lower_score() -> None:
    for values, gains, losses in ((BETTER, 1, 0), (WORSE, 0, 1)):
        found = compared(values)
        assert [c.against for c in found if c.role == "best baseline"] == ["m"]
        text = best_members_section(found)
        assert f"Gains (\\*): {gains} of 1; losses (\\*): {losses}" in text and " m |" in text


def test_a_frontier_joins_the_lower_scores() -> None:
    panel = pl.DataFrame(
        {
            "metric": ["edit_distance"] * 3,
            "forwards_per_token": [1.0, 2.0, 3.0],
            "value": [30.0, 20.0, 40.0],
        }
    )
    assert _undominated(_merits(panel)).to_list() == [True, True, False]


def test_averages_have_one_direction() -> None:
    runs = {"near": ("single", ["m"]), "far": ("single", ["l"])}

    def score(benchmark: str, run: str, metric: str, value: float) -> Score:
        found = {metric: Estimate(value)}
        return Score(benchmark, run, "strict", 4, 0, 0, 0, 0, found, metric, {})

    both = [score(b, run, "edit_distance", v) for b in "ab" for run, v in (("near", 2), ("far", 9))]
    table = build_table(["a", "b"], runs, both, None)
    assert [row.cells[-1].best for row in table.rows] == [True, False] and table.averaged
    mixed = [*both[:2], *(score("b", run, "accuracy", 50) for run in runs)]
    table = build_table(["a", "b"], runs, mixed, None)
    assert [row.cells[-1].value for row in table.rows] == [None, None] and not table.averaged


def _site(folder: Path, values: dict[str, Any], scorer: str, outcomes: Sequence[float]) -> None:
    """An explorer over two examples of a benchmark with a scorer."""
    import pyarrow as pa

    values["benchmarks"] = {"qa": {**values["benchmarks"]["qa"], "scorer": scorer}}
    config = parse_config({**values, "results": str(folder / "results")})
    rows = [PreparedRow(f"q{n}", "?", "?", ("x",)) for n in range(2)]
    write_prepared(folder / "results/benchmarks/qa/rows.jsonl", rows)
    (entry,) = Results(config, {"qa": ("fused",)}).manifest().benchmarks
    trace = folder / "trace.parquet"
    written = [{"id": f"q{n}", **result_columns(FUSED[n])} for n in range(2)]
    write_table(trace, [pa.field("id", pa.string()), *RESULT_FIELDS], written, {})
    given = [Outcome(f"q{n}", "x", ("x",), value) for n, value in enumerate(outcomes)]
    write_outcomes(folder / "outcomes.parquet", given, {})
    files = RunFiles("fused", trace, {"strict": folder / "outcomes.parquet"})
    write_benchmark(folder / "data", "qa", [Question("q0", "?"), Question("q1", "?")], [files])
    runs = {"fused": RunEntry("adafuse", ("ant", "bee"), 0.7)}
    write_manifest(folder / "data", Manifest([entry], runs, ["ant", "bee"], ["strict"]))
    write_explorer(folder, report=False)


@pytest.mark.parametrize(
    ("scorer", "outcomes", "shown"),
    [
        ("contained", (0.0, 1.0), ["✗ wrong", "✓ right"]),
        ("edits", (0.0, 17.5), ["edit distance 0.0", "edit distance 17.5"]),
        ("translation_13a", (0.0, 55.5), ["BLEU 0.0", "BLEU 55.5"]),
    ],
)
def test_the_explorer_shows_its_values_under_its_own_name(
    tmp_path: Path, browser: Any, values: dict[str, Any], scorer, outcomes, shown
) -> None:
    _site(tmp_path, values, scorer, outcomes)
    tab = Tab.opened(browser, tmp_path, DESKTOP, dark=False)
    page = tab.open("explorer.html")
    assert page.locator("#list .mark").all_inner_texts() == shown
    assert page.locator(".verdict").inner_text() == f"{shown[0]} (strict)"
    kinds = page.locator("#show option").all_inner_texts()
    assert ("wrong" in kinds) == (scorer == "contained")
    tab.assert_clean()
    page.context.close()
