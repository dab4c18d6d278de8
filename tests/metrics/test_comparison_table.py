"""The comparison table as CSV and Markdown."""

import csv
import io

import pytest

from adafuse.metrics.compare import LEVEL, compare_runs
from adafuse.metrics.intervals import RESAMPLES
from adafuse.metrics.paired import holm
from adafuse.report.tables import comparison_table, to_csv

from .conftest import accuracy, translation

RUNS = {"m_1": ("single", ["m"]), "bo|th": ("adafuse", ["m", "m"])}
TEXTS = ["the old girl sings a song", "the king sees the white cow"]
COMPARED = compare_runs(
    RUNS,
    [
        accuracy("m_1", [0] * 20 + [1]),
        accuracy("bo|th", [1] * 20 + [0]),
        translation("m_1", TEXTS, TEXTS),
        translation("bo|th", TEXTS, TEXTS),
    ],
)

MARKDOWN = comparison_table(COMPARED, {}).markdown


def test_the_csv_has_the_promised_columns_and_decimals() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(comparison_table(COMPARED, {})))))
    assert list(rows[0]) == [
        "benchmark", "protocol", "run", "against", "role", "metric", "n", "value", "other",
        "difference", "low", "high", "test", "p", "p_holm", "wins", "losses", "higher_is_better",
        "cut", "other_cut", "beyond", "failed", "other_failed",
        "margin", "p_noninferior", "worst", "detectable", "rows_needed",
    ]  # fmt: skip
    assert len(rows) == 4
    assert (rows[0]["value"], rows[0]["other"]) == ("95.2381", "4.7619")
    assert (rows[0]["wins"], rows[0]["losses"], rows[0]["n"]) == ("20", "1", "21")
    assert float(rows[0]["p"]) == pytest.approx(2 * 22 / 2**21, rel=1e-9)
    assert (rows[2]["wins"], rows[2]["losses"], rows[2]["p"]) == ("", "", "1")


def test_the_markdown_has_a_section_per_benchmark_with_n_and_intervals() -> None:
    text = MARKDOWN
    assert "## qa, strict scoring (exact\\_match, McNemar exact, n = 21)" in text
    assert "## mt, strict scoring (bleu\\_13a, paired bootstrap, n = 2)" in text
    row = next(line for line in text.splitlines() if line.startswith("| bo\\|th | m\\_1 | member"))
    assert "| +90.5 [" in row and "] \\* | \\< 0.001 |" in row
    assert "+0.0 | 1.000 | 1.000 | too few differ |  |  |  |" in text


def test_failed_rows_stand_beside_both_scores_of_a_comparison() -> None:
    scores = [accuracy("m_1", [0, 1, 1], failed=1), accuracy("bo|th", [1, 0, 1], failed=2)]
    text = comparison_table(compare_runs(RUNS, scores), {}).markdown
    assert "| bo\\|th | m\\_1 | member | undecided | 66.7 (2 failed) | 66.7 (1 failed) |" in text
    best = text.split("## qa, strict")[0]
    assert "m\\_1 (bo\\|th: 2 failed, m\\_1: 1 failed) |" in best


def test_the_mark_is_explained() -> None:
    text = MARKDOWN
    assert "marked \\* only if p (Holm) is below 0.05 and its interval leaves out 0" in " ".join(
        text.split()
    )


def test_holm_can_mark_the_smallest_bootstrap_p_among_50_tests_and_no_more() -> None:
    smallest = 1 / (RESAMPLES + 1)
    assert holm([smallest] * 50)[0] < LEVEL < holm([smallest] * 51)[0]


def test_rows_have_as_many_cells_as_the_head() -> None:
    lines = [line for line in MARKDOWN.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in lines[3:]} == {14}


def test_each_ensemble_is_shown_against_the_best_of_its_models() -> None:
    runs = {
        **{name: ("single", [name]) for name in ("m", "l", "third")},
        "good": ("adafuse", ["m", "l"]),
        "bad": ("adafuse", ["m", "third"]),
    }
    right = {"m": 20, "l": 30, "third": 90, "good": 60, "bad": 40}
    scores = [accuracy(name, [1] * n + [0] * (100 - n)) for name, n in right.items()]
    text = comparison_table(compare_runs(runs, scores), {}).markdown
    section = text[text.index("## Against the best of its models, strict scoring") :]
    good, bad = section.splitlines()[6:8]
    assert good.startswith("| good | +30.0 [") and good.endswith("] \\* l |")
    assert bad.startswith("| bad | -50.0 [") and bad.endswith("] \\* third |")
    assert "Gains (\\*): 1 of 2; losses (\\*): 1; neither: 0." in text


def test_what_could_not_be_compared_is_said() -> None:
    assert (
        "- bo\\|th is not compared with l:" in comparison_table(COMPARED, {"bo|th": ["l"]}).markdown
    )
    assert "nothing is compared" in comparison_table([], {}).markdown
    assert to_csv(comparison_table([], {})).count("\n") == 1


def test_a_run_is_not_inferior_to_the_best_model_only_if_it_is_to_none() -> None:
    runs = {**{m: ("single", [m]) for m in "ml"}, "both": ("adafuse", ["m", "l"])}
    m = [0, 1] * 500
    near, far = [1 - m[0], 0, *m[2:]], [1, 0] * 500
    for other, cell, counts in (
        (near, "m ‡ |", "neither: 1 (1 ‡, 0 undecided, which does not mean as good)."),
        (far, "m |", "neither: 1 (0 ‡, 1 undecided, which does not mean as good)."),
    ):
        scores = [accuracy("m", m), accuracy("l", other), accuracy("both", m)]
        text = comparison_table(compare_runs(runs, scores), {}).markdown
        assert cell in text.split("## qa, strict")[0] and counts in text
    assert "‡: shown to be less than 1 point worse than every member." in text
    assert "says little" not in text


def test_the_mark_says_little_where_the_margin_is_more_than_half_of_the_best_score() -> None:
    runs = {**{m: ("single", [m]) for m in ("m_1", "l")}, "both": ("adafuse", ["m_1", "l"])}
    right = {"m_1": 6, "l": 5, "both": 6}
    scores = [accuracy(name, [1] * n + [0] * (400 - n)) for name, n in right.items()]
    text = comparison_table(compare_runs(runs, scores), {}).markdown
    assert (
        "- ‡ on qa says little: 1 point is more than half of the 1.5 that m\\_1 scores.\n" in text
    )
    assert "little" not in comparison_table(compare_runs(runs, scores, margin=0.7), {}).markdown
