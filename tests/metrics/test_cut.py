"""Answers that limits cut: counted beside every score, and no mark where runs differ in them."""

import csv
import io
import json
from collections import Counter
from dataclasses import replace
from statistics import fmean
from typing import Any

import polars as pl
import pytest

from adafuse import Ensemble
from adafuse.benchmarks.shards import PreparedRow
from adafuse.config.reading import parse_config
from adafuse.development.advice import advise
from adafuse.development.gate_fitting import Development
from adafuse.errors import UserError
from adafuse.metrics.compare import compare_runs
from adafuse.metrics.score import MANY_CUT, Score, cut_legend, evaluate
from adafuse.metrics.scorer import Outcome
from adafuse.report.charts import notes
from adafuse.report.contents import marks
from adafuse.report.main_table import build_table, score_table, tables_markdown
from adafuse.report.tables import comparison_table, read_comparisons, to_csv
from adafuse.storage.files import PACKAGE
from tests.support.configuration import values as configuration

from .conftest import accuracy, scored

values = configuration

ROWS = [PreparedRow(str(n), "?", "?", ("Paris",)) for n in range(4)]
NAMES = {"benchmark": "qa", "run": "fused"}
RUNS = {"m": ("single", ["m"]), "fused": ("adafuse", ["m", "l"])}


def predictions(*reasons: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": str(n), "text": "Paris", "stop_reason": reason, **more}
        for n, reason in enumerate(reasons)
    ]


def score(*reasons: str, **more: Any) -> Score:
    return evaluate(ROWS, predictions(*reasons), "squad", **(NAMES | more)).score


def test_a_score_counts_the_answers_that_a_limit_cut() -> None:
    assert score("length", "stop", "eos", "length").cut_share == 50
    assert score("stop", "error").cut == 0
    assert score("", "", "").cut_share is None  # predictions of somebody else


def test_the_main_table_has_the_share_beside_every_cell_and_warns() -> None:
    found = [score("length", "stop"), score("stop", "eos", run="m")]
    table = build_table(["qa"], RUNS, found, None)
    (one, fused) = csv.DictReader(io.StringIO(to_csv(score_table(table))))
    assert (one["qa_cut"], fused["qa_cut"]) == ("0.0000", "25.0000")
    text = tables_markdown(table, None, None)
    assert " 25.0 % cut |" in text and " 0.0 % cut |" in text
    warning = "fused on qa: 25.0 % of the answers are cut; raise max_new_tokens or max_rounds"
    assert table.warnings == [warning]


@pytest.mark.parametrize(
    ("cut", "other", "marked"),
    [(0, 0, True), (100, 100, True), (5, 0, True), (6, 0, False), (0, 6, False), (40, 100, False)],
)
def test_there_is_no_mark_where_limits_cut_more_of_one_run(cut: int, other: int, marked) -> None:
    runs = [accuracy("m", [0] * 100, cut=other), accuracy("fused", [1] * 60 + [0] * 40, cut=cut)]
    found = compare_runs(RUNS, runs)
    text = to_csv(comparison_table(found, {}))
    for each in (found, read_comparisons(text)):
        assert bool(marks(each)) == marked
    table = comparison_table(found, {}).markdown
    assert f"60.0 ({cut:.1f} % cut) | 0.0 ({other:.1f} % cut)" in table
    assert f"more than {MANY_CUT:.0f} points" in " ".join(table.split())


def test_a_difference_of_five_points_is_marked_whatever_the_number_of_rows() -> None:
    runs = [accuracy("m", [0] * 60, cut=17), accuracy("fused", [1] * 40 + [0] * 20, cut=20)]
    found = compare_runs(RUNS, runs)
    for each in (found, read_comparisons(to_csv(comparison_table(found, {})))):
        assert marks(each)


@pytest.mark.parametrize(("failed", "marked"), [(5, True), (6, False)])
def test_there_is_no_mark_and_no_best_where_many_failed_and_are_not_just_wrong(
    failed: int, marked: bool
) -> None:
    values = {"m": [0.0] * 100, "fused": [80.0] * 60 + [0.0] * 40}
    runs = [
        scored(
            run, [Outcome(f"r{n}", "x", ("x",), v) for n, v in enumerate(each)], "f1", fmean(each)
        )
        for run, each in values.items()
    ]
    runs[1] = replace(runs[1], score=replace(runs[1].score, failed=failed))
    found = compare_runs(RUNS, runs)
    for each in (found, read_comparisons(to_csv(comparison_table(found, {})))):
        assert bool(marks(each)) == marked
    table = build_table(["qa"], RUNS, [one.score for one in runs], None)
    assert [row.cells[0].best for row in table.rows] == [not marked, marked]


@pytest.mark.parametrize(("beyond", "marked"), [(5, True), (6, False)])
def test_there_is_no_mark_where_all_are_cut_but_some_go_beyond_the_limit(
    beyond: int, marked
) -> None:
    runs = [accuracy("m", [0] * 100, cut=100), accuracy("fused", [1] * 60 + [0] * 40, cut=100)]
    runs[1] = replace(runs[1], score=replace(runs[1].score, beyond=beyond))
    found = compare_runs(RUNS, runs)
    for each in (found, read_comparisons(to_csv(comparison_table(found, {})))):
        assert bool(marks(each)) == marked
    table = build_table(["qa"], RUNS, [one.score for one in runs], None)
    doubt = any("do not fit into max_new_tokens" in warning for warning in table.warnings)
    assert doubt != marked


def test_within_the_budget_only_what_fits_is_scored_and_counts_as_cut() -> None:
    texts = [
        *predictions("stop", "eos", fits=3),
        {"id": "2", "text": "Paris", "stop_reason": "eos"},
    ]
    whole = evaluate(ROWS, texts, "squad", **NAMES).score
    fitting = evaluate(ROWS, texts, "squad", **NAMES, within_budget=True).score
    assert (whole.main.value, whole.cut_share) == (75, 0)
    assert (fitting.main.value, fitting.cut_share) == (25, 50)
    assert (whole.beyond, fitting.beyond) == (2, 0)
    assert "scored whole" in cut_legend([whole]) and "(`within_budget: true`)." in cut_legend(
        [fitting]
    )
    assert "but whole texts of qa." in cut_legend([whole, replace(fitting, benchmark="mt")])


@pytest.mark.parametrize("protocol", ["strict", "published"])
def test_thoughts_are_not_scored_and_count_as_cut_where_a_limit_cut_them(protocol: str) -> None:
    answers = [row.answers[0] for row in ROWS]
    thought = "<think>" + " ".join(answers) + "</think>"
    texts = [
        {"id": row.id, "text": thought + answer, "stop_reason": "eos", "thoughts": len(thought)}
        for row, answer in zip(ROWS, answers, strict=True)
    ]
    score = evaluate(ROWS, texts, "squad", protocol, **NAMES).score
    assert (score.main.value, score.cut, score.empty) == (100, 0, 0)
    for row in texts:
        row |= {"text": thought, "stop_reason": "length"}
    score = evaluate(ROWS, texts, "squad", protocol, **NAMES).score
    assert (score.main.value, score.cut, score.empty) == (0, len(ROWS), len(ROWS))
    for row in texts:
        row |= {"text": thought + "answer", "fits": 3}
    score = evaluate(ROWS, texts, "squad", protocol, **NAMES, within_budget=True).score
    assert (score.main.value, score.cut, score.beyond) == (0, len(ROWS), 0)


def test_the_budget_is_a_setting_of_a_benchmark(values: dict[str, Any]) -> None:
    assert parse_config(values).benchmarks["qa"].within_budget is False
    values["benchmarks"]["qa"]["within_budget"] = True
    assert parse_config(values).benchmarks["qa"].within_budget is True


def test_runs_under_study_are_named_in_the_main_table(values: dict[str, Any]) -> None:
    first = next(iter(values["runs"]))
    assert parse_config(values | {"main": {"study": [first]}}).main.study == (first,)
    with pytest.raises(UserError, match="main: unknown run 'nobody'"):
        parse_config(values | {"main": {"study": ["nobody"]}})


def test_a_figure_names_the_runs_whose_answers_are_cut() -> None:
    cut = {"run": ["m", "l", "l"], "benchmark": ["qa"] * 3, "cut": [None, 56.2, 56.2]}
    assert notes(pl.DataFrame(cut)) == " Answers cut by limits: l on qa (56 %)."
    assert notes(pl.DataFrame(cut | {"cut": [0.0, 5.0, 1.0]})) == ""
    beyond = cut | {"cut": [0.0] * 3, "beyond": [0.0, 5.0, 30.0]}
    expected = " Answers that do not fit into max_new_tokens: l on qa (30 %)."
    assert notes(pl.DataFrame(beyond)) == expected


MODELS = [str(PACKAGE / "toy" / "models" / name) for name in ("mistral", "llama")]
QUESTIONS = [
    f"Question: {text}\nAnswer:"
    for text in ("Who wrote the Song?", "What is soap made of?", "Who?")
]
SETTINGS = {"max_new_tokens": 2, "stop": ["\n"]}


@pytest.mark.parametrize("method", ["adafuse", "fixed_length", "unite", "rerank", "bytewise"])
def test_what_fits_is_what_some_model_holds_in_that_many_tokens(method: str) -> None:
    pair = Ensemble.from_pretrained(MODELS)
    found = pair.generate(QUESTIONS, method=method, **SETTINGS)
    for result in found:
        beyond = min(result.tokens) > SETTINGS["max_new_tokens"]
        assert (result.fits is not None) <= beyond
        if result.fits is not None:
            kept, texts = result.text[: result.fits], []
            for model in pair.models:
                ids = model.encode_span(result.text)[: SETTINGS["max_new_tokens"]]
                texts.append(model.anchor([1]).added(ids))
            assert kept in texts
    assert any(result.fits is not None for result in found) == (
        method in ("adafuse", "fixed_length")
    )


def test_of_one_model_everything_fits() -> None:
    alone = Ensemble.from_pretrained(MODELS[:1]).generate(QUESTIONS, method="single", **SETTINGS)
    assert Counter(result.fits for result in alone) == {None: len(QUESTIONS)}


def test_a_fused_answer_that_goes_beyond_a_budget_of_one_token_is_no_gain() -> None:
    pair = Ensemble.from_pretrained(MODELS)
    file = PACKAGE / "toy" / "benchmarks" / "toy_qa.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()[:20]]
    prompts = [f"Question: {row['question']}\nAnswer:" for row in rows]
    answers = [[row["answer"]] if isinstance(row["answer"], str) else row["answer"] for row in rows]
    settings = {"max_new_tokens": 1, "stop": ["\n"]}
    found = advise(pair, Development("qa", prompts, answers, "squad", settings))
    assert [member.score.value for member in found.members] == [0, 0]
    assert found.fused.value > 30 and found.against.p_holm < 0.05
    assert not found.against.significant
    assert [member.cut for member in found.members] == [100, 100] and found.cut < 95
    assert found.verdict.startswith("No verdict: limits cut 100 % of the answers")
