"""The main table as CSV and Markdown."""

import csv
import io
from dataclasses import replace
from statistics import fmean

import pytest

from adafuse.errors import UserError
from adafuse.metrics.intervals import Estimate
from adafuse.metrics.score import CERTIFICATE, CERTIFIED, NEVER_RIGHT, Score
from adafuse.report.main_table import (
    ScoreTable,
    build_table,
    metrics_table,
    score_table,
    tables_markdown,
    to_markdown,
)
from adafuse.report.tables import Table, escape, to_csv


def score(
    benchmark: str, run: str, value: float, n: int = 10, missing: int = 0,
    protocol: str = "strict", spm: str = "",
) -> Score:  # fmt: skip
    return Score(
        benchmark=benchmark, run=run, protocol=protocol, n=n, excluded=0, missing=missing, empty=0,
        failed=0, metrics={"exact_match": Estimate(value, value - 5, value + 5)},
        primary="exact_match", details={"spm_sha256": spm} if spm else {},
    )  # fmt: skip


RUNS = {"one": ("single", ["m1"]), "both_1": ("adafuse", ["m1", "m|2"])}


def table(*scores: Score, note: str | None = None) -> ScoreTable:
    return build_table(["qa", "mt"], RUNS, scores, note)


FULL = (
    score("qa", "one", 41.123456),
    score("mt", "one", 30),
    score("mt", "both_1", 29.96),
    score("qa", "both_1", 60, missing=2),
)


def test_the_csv_has_the_promised_columns_and_a_row_per_run() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(score_table(table(*FULL))))))
    ends = ("", "_low", "_high", "_n", "_cut", "_failed")
    cells = [f"{name}{end}" for name in ("qa", "mt") for end in ends]
    averages = ["macro_average", "macro_average_failed"]
    assert list(rows[0]) == ["run", "method", "models", *cells, *averages]
    assert [(row["run"], row["models"]) for row in rows] == [("one", "m1"), ("both_1", "m1+m|2")]


def test_one_benchmark_shows_no_macro_average_and_its_csv_keeps_the_column() -> None:
    alone = build_table(["qa"], RUNS, [FULL[0], FULL[3]], None)
    assert "macro average" not in tables_markdown(alone, alone, None)
    assert "macro average" in tables_markdown(table(*FULL), None, None)
    rows = list(csv.DictReader(io.StringIO(to_csv(score_table(alone)))))
    for row in rows:
        assert float(row["macro_average"]) == pytest.approx(float(row["qa"]), abs=1e-4)


def test_the_macro_average_is_the_mean_of_the_row_s_own_cells() -> None:
    for row in csv.DictReader(io.StringIO(to_csv(score_table(table(*FULL))))):
        mean = fmean(float(row[name]) for name in ("qa", "mt"))
        assert float(row["macro_average"]) == pytest.approx(mean, abs=1e-4)


def test_a_missing_cell_is_blank_and_so_is_its_average() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(score_table(table(*FULL[1:]))))))
    assert (rows[0]["qa"], rows[0]["qa_n"], rows[0]["macro_average"]) == ("", "", "")
    assert rows[1]["macro_average"] != ""


def test_the_best_of_a_column_goes_by_what_is_printed() -> None:
    one, both = table(*FULL).rows
    assert [cell.best for cell in one.cells] == [False, True, False]
    assert [cell.best for cell in both.cells] == [True, True, True], "30.0 and 29.96"
    assert not any(cell.best for row in table().rows for cell in row.cells)


def test_the_markdown_shows_intervals_n_once_bold_bests_and_the_note_first() -> None:
    text = to_markdown(table(*FULL, note="means | nothing"))
    assert text.startswith("**Note:** means \\| nothing\n\n| run |")
    assert text.count("n = 10") == 2
    assert "| **60.0** [55.0, 65.0] |" in text
    assert "| 41.1 [36.1, 46.1] |" in text
    assert "both\\_1 on qa: 2 missing, 0 empty, 0 failed" in text


def test_failed_rows_stand_beside_every_score_that_counts_them() -> None:
    shown = table(*(replace(each, failed=k) for k, each in enumerate(FULL)))
    rows = list(csv.DictReader(io.StringIO(to_csv(score_table(shown)))))
    failed = {name: [row[f"{name}_failed"] for row in rows] for name in ("qa", "mt")}
    assert failed == {"qa": ["0", "3"], "mt": ["1", "2"]}
    assert [row["macro_average_failed"] for row in rows] == ["1", "5"]
    text = to_markdown(shown)
    assert "| 41.1 [36.1, 46.1] | **30.0** [25.0, 35.0] 1 failed | 35.6 1 failed |" in text
    assert "| **60.0** [55.0, 65.0] 3 failed |" in text


def test_rows_that_can_never_be_right_are_a_remark_of_their_benchmark() -> None:
    never = [replace(each, details={NEVER_RIGHT: 2}) for each in FULL if each.benchmark == "qa"]
    text = to_markdown(table(*never))
    assert text.count("qa: 2 rows that can never be right: no text equals their") == 1


def test_many_empty_answers_are_a_warning_above_the_table() -> None:
    doubtful = replace(score("qa", "one", 10, n=100), empty=6)
    shown = table(doubtful, replace(score("mt", "one", 10, n=100), empty=5))
    (warning,) = shown.warnings
    assert warning.startswith("one on qa: 6 % of the answers are empty; look at some")
    text = tables_markdown(shown, shown, None)
    assert text.startswith("**Warning:** one on qa: 6 % of") and text.count("Warning") == 1


def test_many_answers_that_end_in_a_colon_are_a_warning() -> None:
    (warning,) = table(replace(score("qa", "one", 10, n=100), announced=6)).warnings
    assert warning.startswith("one on qa: 6 % of the answers end in a colon; look at some")


def test_the_published_table_says_by_what_its_oracles_chose() -> None:
    runs, said = RUNS | {"best": ("best_of", ["m1", "m|2"])}, "Oracles chose by strict scores"
    strict, published = (
        build_table(["qa"], runs, [score("qa", run, 50, protocol=protocol) for run in runs], None)
        for protocol in ("strict", "published")
    )
    text = tables_markdown(strict, published, None)
    assert text.count(said) == 1 and said in text.partition("## Published scorer")[2]
    assert said not in tables_markdown(table(*FULL), table(*FULL), None), "without an oracle"


def test_the_published_table_says_that_certificates_are_of_strict_scores() -> None:
    strict, published = (
        table(
            replace(
                score("qa", "one", 50, protocol=protocol),
                details={CERTIFICATE: "one: certified", CERTIFIED: 1},
            )
        )
        for protocol in ("strict", "published")
    )
    said = "Certificates are of strict scores"
    text = tables_markdown(strict, published, None)
    assert text.count(said) == 1 and said in text.partition("## Published scorer")[2]
    assert said not in tables_markdown(table(*FULL), table(*FULL), None), "without a certificate"


def test_markdown_rows_have_as_many_cells_as_the_head() -> None:
    rows = [line for line in to_markdown(table(*FULL)).splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {7}


def test_a_text_with_any_line_break_is_one_field_of_the_csv() -> None:
    texts = ["a\rb", "a\nb", "a\r\nb", '"a", b', "\r"]
    text = to_csv(Table(list("vwxyz"), [texts, texts]))
    assert [*csv.reader(io.StringIO(text, newline=""))] == [list("vwxyz"), texts, texts]
    assert text.startswith("v,w,x,y,z\n") and text.endswith('"\r"\n')


def test_names_cannot_become_markup() -> None:
    assert escape("a_b*c|d<e>\n[f](g) & `h`") == "a\\_b\\*c\\|d\\<e\\> \\[f\\](g) \\& \\`h\\`"


def test_scores_over_different_rows_cannot_share_a_column() -> None:
    with pytest.raises(UserError, match=r"'qa' cover \[10, 11\] rows"):
        table(FULL[0], score("qa", "both_1", 60, n=11))


def test_protocols_cannot_share_a_table() -> None:
    with pytest.raises(UserError, match="scores of published and strict cannot stand in one table"):
        table(FULL[0], score("mt", "one", 60, protocol="published"))


def test_bleu_with_different_sentencepiece_models_cannot_share_a_table() -> None:
    table(score("qa", "one", 40), score("mt", "one", 60, spm="aa"))
    with pytest.raises(UserError, match="different SentencePiece models, sha256 aa and bb"):
        table(score("qa", "one", 40, spm="bb"), score("mt", "one", 60, spm="aa"))


def test_both_protocols_stand_apart_with_their_difference_in_points() -> None:
    lenient = table(*(score(s.benchmark, s.run, s.main.value + 7.5) for s in FULL), note="x")
    text = tables_markdown(table(*FULL, note="x"), lenient, None)
    strict, published, difference = text.split("\n## ")
    assert "strict scoring" in strict and "48.6" not in strict
    assert (
        not {"{", "}"} & {*text} and text.count("Texts are scored whole") == 2
    )  # the captions are whole
    assert "published scoring" in published and "| 48.6 [43.6, 53.6] |" in published
    assert text.count("**Note:**") == 1
    assert "| one | +7.5 | +7.5 | +7.5 |" in difference


def test_every_metric_of_every_run_stands_in_a_table_of_its_benchmark_and_protocol() -> None:
    more = {"bertscore_f1": Estimate(91.2, 90.0, 92.5), "f1": Estimate(50.04)}
    fewer = {"bertscore_f1": Estimate(91.24), "f1": Estimate(49.0)}
    full = [
        replace(FULL[0], metrics={**FULL[0].metrics, **more}),
        replace(FULL[3], metrics={**FULL[3].metrics, **fewer}),
        FULL[1],
    ]
    published = build_table(["qa"], RUNS, [score("qa", "one", 45, protocol="published")], None)
    made = metrics_table([table(*full), published])
    assert made.markdown.splitlines()[4:] == [
        "## qa, strict scoring, n = 10", "",
        "| run | exact match | BERTScore F1 | token F1 |", "| --- | ---: | ---: | ---: |",
        "| one | 41.1 [36.1, 46.1] | **91.2** [90.0, 92.5] | **50.0** |",
        "| both\\_1 | **60.0** [55.0, 65.0] | **91.2** | 49.0 |", "",
        "## mt, strict scoring, n = 10", "",
        "| run | exact match |", "| --- | ---: |", "| one | **30.0** [25.0, 35.0] |", "",
        "## qa, published scoring, n = 10", "",
        "| run | exact match |", "| --- | ---: |", "| one | **45.0** [40.0, 50.0] |",
    ]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(to_csv(made))))
    assert len(rows) == 3 + 3 + 1 + 1
    assert rows[1] == {
        "protocol": "strict", "benchmark": "qa", "run": "one", "n": "10",
        "metric": "bertscore_f1", "value": "91.2000", "low": "90.0000", "high": "92.5000",
    }  # fmt: skip
