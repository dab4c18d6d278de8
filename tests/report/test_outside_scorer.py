"""A scorer of somebody else is known everywhere from its registration alone."""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from adafuse import Ensemble
from adafuse.benchmarks.shards import PreparedRow, write_prepared
from adafuse.cli.options import scorer_names
from adafuse.config.config import Config
from adafuse.config.reading import parse_config
from adafuse.development.advice import advise
from adafuse.development.gate_fitting import Development, _worth
from adafuse.errors import UserError
from adafuse.export.dataset import _metrics, _samples
from adafuse.metrics.compare import Comparison, compare_runs
from adafuse.metrics.intervals import Estimate, mean
from adafuse.metrics.registry import SCORERS, metric_named, register_scorer
from adafuse.metrics.score import (
    Score,
    ScoredRun,
    evaluate,
    read_scored,
    write_outcomes,
    write_score,
)
from adafuse.metrics.scorer import (
    Judgement,
    Metric,
    Outcome,
    Prediction,
    Scorer,
    judge,
    share_right,
)
from adafuse.metrics.translation import bleu_corpus
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
from adafuse.report.failures import failures, failures_table
from adafuse.report.figures import measured, page_scores
from adafuse.report.main_table import averaged, build_table, stored_table, to_markdown
from adafuse.report.pages import write_explorer, write_report
from adafuse.report.stored import StoredResults
from adafuse.report.tables import best_members_section, comparison_table, read_comparisons, to_csv
from adafuse.storage.files import write_text
from adafuse.storage.parquet import read_rows, write_rows
from adafuse.storage.traces import RESULT_FIELDS, result_columns
from adafuse.workflow.choose import choose_rows
from adafuse.workflow.decode import TRACE_FIELDS
from adafuse.workflow.layout import ResultsLayout
from tests.report import test_figures as figures
from tests.report.test_facts import shard
from tests.support.browser import DESKTOP, Tab
from tests.support.configuration import values as configuration
from tests.support.made_up import FUSED
from tools.docs.tables import scorers_table

values = configuration


def contained(examples: Sequence[Prediction]) -> Judgement:
    outcomes = judge(examples, lambda each: any(answer in each.text for answer in each.answers))
    return Judgement(outcomes, {"contained": share_right(outcomes)})


def edits(examples: Sequence[Prediction]) -> Judgement:
    values = [float(len(e.text) or 100) for e in examples]
    pairs = zip(examples, values, strict=True)
    outcomes = tuple(Outcome(e.id, e.text, e.answers, value) for e, value in pairs)
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
    with pytest.raises(UserError, match=r"two scorers 'contained' \(of .*\); rename one of them"):
        register_scorer(replace(CONTAINED, doc="another"))


@pytest.mark.parametrize("protocol", ["strict", "published"])
def test_without_published_rules_both_protocols_are_the_same(protocol: str) -> None:
    rows = [PreparedRow("a", "?", "?", ("Rome",)), PreparedRow("b", "?", "?", ("Oslo",))]
    texts = [{"id": "a", "text": "in Rome"}, {"id": "b", "text": "no idea"}]
    found = evaluate(rows, texts, "contained", protocol, benchmark="qa", run="x")
    assert (found.score.primary, found.score.main.value) == ("contained", 50)


def test_the_table_names_the_metric_and_its_best_is_the_lowest() -> None:
    runs = {"near": ("single", ["m"]), "far": ("single", ["l"])}
    table = build_table(
        ["qa"],
        runs,
        [scored("qa", "near", "edit_distance", 2), scored("qa", "far", "edit_distance", 9)],
        None,
    )
    assert [row.cells[0].best for row in table.rows] == [True, False]
    assert (table.columns[0].metric.label, table.columns[0].n) == ("edit distance", 4)


def test_a_metric_of_a_known_name_but_of_another_kind_is_refused() -> None:
    odd = Metric("exact_match", "exact match", binary=True, higher_is_better=False)
    with pytest.raises(UserError, match="a metric 'exact_match' of another kind"):
        register_scorer(replace(CONTAINED, name="odd", metrics=(odd,)))
    assert "odd" not in SCORERS


def scored(benchmark: str, run: str, metric: str, value: float) -> Score:
    found = {metric: Estimate(value)}
    return Score(benchmark, run, "strict", 4, 0, 0, 0, 0, found, metric, {})


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


ACCURACY = Metric("accuracy", "accuracy", binary=True)
BLEU = Metric("bleu", "BLEU", corpus=bleu_corpus("13a"))
LOWER = Metric("edits", "edits", higher_is_better=False)


def test_averages_have_one_direction() -> None:
    runs = {"near": ("single", ["m"]), "far": ("single", ["l"])}

    both = [
        scored(b, run, "edit_distance", v) for b in "ab" for run, v in (("near", 2), ("far", 9))
    ]
    table = build_table(["a", "b"], runs, both, None)
    assert [row.cells[-1].best for row in table.rows] == [True, False] and table.averaged
    mixed = [*both[:2], *(scored("b", run, "accuracy", 50) for run in runs)]
    table = build_table(["a", "b"], runs, mixed, None)
    assert [row.cells[-1].value for row in table.rows] == [None, None] and not table.averaged


@pytest.mark.parametrize(
    ("metrics", "has"),
    [
        ([ACCURACY, BLEU], True),  # the paper's
        ([LOWER, LOWER], True),
        ([LOWER, replace(LOWER, name="wer")], False),
        ([ACCURACY, LOWER], False),
        ([ACCURACY, Metric("similarity", "from 0 to 1")], False),
        ([replace(ACCURACY, name=n, higher_is_better=False) for n in ("a", "b")], False),
    ],
)
def test_an_average_is_of_one_metric_or_of_shares_that_are_better_if_higher(metrics, has) -> None:
    assert (averaged(metrics) is not None) == has


def test_the_figure_of_a_frontier_joins_the_lower_scores(world) -> None:
    for run, passes, value in (("m", 1, 30.0), ("l", 2, 40.0)):
        world.trace("squad", run, [2.0], words=(), forwards=(passes,))
        write_score(
            world.root / f"scores/strict/squad/{run}.json",
            scored("squad", run, "edit_distance", value),
        )
    table, chart = measured(world.experiment("frontier", ["squad"], ["m", "l"]))
    assert dict(table.select("run", "best").iter_rows()) == {"m": True, "l": False}
    spec = str(chart)
    drawn = dict(re.findall(r"'series': '(\w+)'[^}]*'best': (\w+)", spec))
    assert drawn == {"m": "True", "l": "False"}
    assert "squad, edit distance" in spec


def test_every_figure_of_scores_says_that_lower_is_better() -> None:
    def of(point: dict[str, Any]) -> list[dict[str, Any]]:
        return [point | {"metric": "edit_distance"}]

    drawn = [
        figures.draw_scores("Scores", of(figures.score("m", "qa", "strict"))),
        figures.draw_paired("Pairs", of(figures.difference("l", True))),
        figures.draw_sweep("Sweep", of(figures.sweep(1))),
        figures.drawn(figures.figures.draw_frontier)("Frontier", of(figures.COSTS[0])),
    ]
    for figure in drawn:
        text = figures.written(figure).replace("\n", " ")
        assert text.count("lower is better") == 2, text  # above the panel and on its axis
        assert "in percent" not in text
    table = build_table(["qa"], {"m": RUNS["m"]}, [scored("qa", "m", "edit_distance", 2)], None)
    page = str(page_scores({"strict": table}))
    assert "qa (edit distance, lower is better)" in page
    assert "score, lower is better, with 95 % intervals" in page and "percent" not in page


@pytest.fixture
def stored(values: dict[str, Any]) -> Config:
    """Results of three models and their pairs by edit distance: "right" has the lowest."""
    runs = {
        "right": {"method": "single", "models": ["right"]},
        "near": {"method": "adafuse", "models": ["right", "hub"]},
        "last": {"method": "adafuse", "models": ["left", "hub"]},
        "oracle": {"method": "best_of", "models": ["left", "right"]},
    }
    pairs = {"models": ["left", "right", "hub"], "options": {"runs": ["both", "near", "last"]}}
    runs |= {name: {"method": name, **pairs} for name in ("best_pair", "development_pair")}
    values["runs"] |= runs
    qa = {**values["benchmarks"]["qa"], "scorer": "edits"}
    values["benchmarks"] = {"qa": {**qa, "development": "dev"}, "dev": qa}
    main = {"benchmarks": ["qa"], "runs": ["left", "right", "far", "both", "near", "last"]}
    config = parse_config({**values, "main": main})
    layout = ResultsLayout(config.results)
    lengths = {
        "left": (9, 1),
        "right": (2, 4),
        "far": (5, 6),
        "both": (8, 9),
        "near": (1, 1),
        "last": (8, 8),
    }
    prepared = [PreparedRow(f"q{n}", f"whole {n}", f"task {n}", ("x",)) for n in range(2)]
    for benchmark in ("qa", "dev"):
        write_prepared(layout.rows(benchmark), prepared)
        for run, texts in lengths.items():
            found = outcomes(run, [texts[n % 2] for n in range(80)], benchmark=benchmark)
            write_score(layout.score("strict", benchmark, run), found.score)
            write_outcomes(layout.outcomes("strict", benchmark, run), found.outcomes, {})
            rows = [
                {
                    "id": f"q{n}",
                    "benchmark": benchmark,
                    "run": run,
                    "shard": 0,
                    "prompt_sha256": "0",
                }
                | result_columns(replace(FUSED[n], text="x" * texts[n]))
                for n in range(2)
            ]
            about = {"digest": run, "shards": [shard()]}
            write_rows(layout.trace(benchmark, run), TRACE_FIELDS, rows, about)
    return config


def test_choices_between_runs_take_the_lower_scores(stored: Config, tmp_path: Path) -> None:
    out = tmp_path / "chosen.parquet"
    choose_rows(stored, "qa", "oracle", out)
    assert [(row["text"], row["taken_from"]) for row in read_rows(out)] == [
        ("xx", "right"),
        ("x", "left"),
    ]
    for run in ("best_pair", "development_pair"):  # left has 5.0 and far 5.5 on average
        assert choose_rows(stored, "qa", run, out) == {"both": 2}


def test_the_report_has_the_lower_score_in_bold_and_marked(stored: Config, tmp_path: Path) -> None:
    runs = {name: (stored.runs[name].method, stored.runs[name].models) for name in stored.main_runs}
    layout = ResultsLayout(stored.results)
    found = [read_scored(layout.score("strict", "qa", run)) for run in runs]
    write_text(
        layout.table("comparison.csv"), to_csv(comparison_table(compare_runs(runs, found), {}))
    )
    report = StoredResults.in_folder(replace_runs(stored))
    write_report(report, tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text()
    rows = page.split('<table class="scores">')[1].split("</table>")[0].split("<tr>")
    best = [row for row in rows if "number best" in row]
    assert len(best) == 1 and "run=near" in best[0] and "<sup>*†</sup>" in best[0]
    assert page.count("†</sup>") == 1
    table = to_markdown(stored_table(stored))
    assert "**1.0**" in table and table.count("**") == 2
    assert "qa (edit\\_distance, lower is better, n = 80)" in table


def test_the_file_of_failures_calls_no_value_right_or_wrong(stored: Config) -> None:
    found = failures(StoredResults.in_folder(stored), "qa", ["left", "right"], "strict")
    text = to_csv(failures_table([("qa", failure) for failure in found], ["left"], "strict"))
    rows = [*csv.DictReader(text.splitlines())]
    assert [(row["left_value"], row["left_right"]) for row in rows] == [
        ("9.0000", ""),
        ("1.0000", ""),
    ]


def replace_runs(config: Config) -> Config:
    """A configuration without the runs that were not made."""
    kept = {name: run for name, run in config.runs.items() if name in config.main_runs}
    return config.model_copy(update={"runs": kept})


def test_what_a_gate_learns_from_is_worth_more_where_the_score_is_lower() -> None:
    rows = Development("qa", ["?"], [("x",)], "edits", {})
    texts = [replace(FUSED[0], text="x" * length) for length in (4, 1, 2)]
    assert _worth(rows, [0, 0, 0], texts) == ([-1.0, -0.25, -0.5], 4.0)


def test_advice_names_the_model_of_the_lower_score_as_the_best(pair: Ensemble) -> None:
    prompts = [f"Question: who has {n} cats?\nAnswer:" for n in range(4)]
    rows = Development("qa", prompts, [("x",)] * 4, "edits", {"max_new_tokens": 8, "stop": ["\n"]})
    advice = advise(pair, rows, branching=2)
    one, other = advice.members
    best = min(advice.members, key=lambda member: member.score.value)
    assert one.score.value != other.score.value
    assert advice.against.against == best.name
    assert advice.ceiling <= best.score.value
    assert advice.against.gain == pytest.approx(best.score.value - advice.fused.value)


def test_an_exported_record_says_that_lower_is_better(stored: Config) -> None:
    layout = ResultsLayout(stored.results)
    found = read_scored(layout.score("strict", "qa", "near"))
    (record,) = _metrics(stored, "qa", "near", found)
    config = record["metric_config"]
    assert (config["lower_is_better"], config["max_score"]) == (True, "Infinity")
    perfect = replace(found, outcomes=(replace(found.outcomes[0], value=0.0), found.outcomes[1]))
    samples = _samples(StoredResults.in_folder(stored), "qa", "near", perfect, "e")
    assert [sample["evaluation"]["is_correct"] for sample in samples] == [True, False]


def _site(folder: Path, values: dict[str, Any], scorer: str, outcomes: Sequence[float]) -> None:
    """An explorer over two examples of a benchmark with a scorer; the run "other" has 9 on each."""
    import pyarrow as pa

    values["benchmarks"] = {"qa": {**values["benchmarks"]["qa"], "scorer": scorer}}
    config = parse_config({**values, "results": str(folder / "results")})
    rows = [PreparedRow(f"q{n}", "?", "?", ("x",)) for n in range(2)]
    write_prepared(folder / "results/benchmarks/qa/rows.jsonl", rows)
    (entry,) = StoredResults(config, {"qa": ("fused", "other")}).manifest().benchmarks
    trace = folder / "trace.parquet"
    written = [{"id": f"q{n}", **result_columns(FUSED[n])} for n in range(2)]
    write_rows(trace, [pa.field("id", pa.string()), *RESULT_FIELDS], written, {})
    given = [Outcome(f"q{n}", "x", ("x",), value) for n, value in enumerate(outcomes)]
    write_outcomes(folder / "outcomes.parquet", given, {})
    nine = [replace(outcome, value=9.0) for outcome in given]
    write_outcomes(folder / "other.parquet", nine, {})
    files = [
        RunFiles("fused", trace, {"strict": folder / "outcomes.parquet"}),
        RunFiles("other", trace, {"strict": folder / "other.parquet"}),
    ]
    write_benchmark(folder / "data", "qa", [Question("q0", "?"), Question("q1", "?")], files)
    runs = {name: RunEntry("adafuse", ("ant", "bee"), 0.7) for name in ("fused", "other")}
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


def test_the_explorer_lists_as_better_what_has_the_lower_value(
    tmp_path: Path, browser: Any, values: dict[str, Any]
) -> None:
    _site(tmp_path, values, "edits", (0.0, 17.5))
    tab = Tab.opened(browser, tmp_path, DESKTOP, dark=False)
    for show, found in (("better", ["q0"]), ("worse", ["q1"])):
        page = tab.open("explorer.html", f"#run=fused&beside=other&show={show}")
        assert page.locator("#list .id").all_inner_texts() == found
    tab.assert_clean()
    tab.page.context.close()
