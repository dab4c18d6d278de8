"""Rows that all members get wrong or right, and what an ensemble makes of them."""

import pytest
from scipy import stats

from adafuse.metrics.cofailure import co_failures
from adafuse.metrics.registry import metric_named
from adafuse.report.tables import gain_table, to_csv

from .conftest import accuracy, translation, values

RUNS = {
    "m": ("single", ["m"]),
    "l": ("single", ["l"]),
    "both": ("adafuse", ["m", "l"]),
    "alone": ("adafuse", ["m", "third"]),
    "oracle": ("best_of", ["m", "l"]),
}
#        both wrong     m only   l only  both right
M = accuracy("m", [0] * 10 + [1] * 5 + [0] * 4 + [1] * 6)
L = accuracy("l", [0] * 10 + [0] * 5 + [1] * 4 + [1] * 6)
BOTH = accuracy("both", [1] * 3 + [0] * 7 + [1] * 9 + [1] * 4 + [0] * 2)


def test_the_counts_are_those_of_the_rows() -> None:
    (found,) = co_failures(RUNS, [M, L, BOTH])
    assert (found.run, found.n) == ("both", 25)
    assert (found.all_wrong, found.gained, found.all_right, found.lost) == (10, 3, 6, 2)
    assert (found.beta, found.bound) == (40, 60)
    assert (found.best, found.value) == (44, 64)  # above the bound, which no choice can pass
    ends = stats.binomtest(10, 25).proportion_ci(method="exact")
    assert (found.beta_low, found.beta_high) == pytest.approx((100 * ends.low, 100 * ends.high))


def test_rows_are_matched_by_id() -> None:
    ids = [outcome.id for outcome in BOTH.outcomes]
    turned = accuracy("both", values(BOTH)[::-1], ids[::-1])
    assert co_failures(RUNS, [M, L, turned]) == co_failures(RUNS, [M, L, BOTH])


def test_only_ensembles_whose_members_all_have_a_run_of_their_own_are_counted() -> None:
    scores = [M, L, BOTH, accuracy("alone", values(BOTH)), accuracy("oracle", values(BOTH))]
    assert [found.run for found in co_failures(RUNS, scores)] == ["both"]
    assert co_failures(RUNS, [M, BOTH]) == []


def test_metrics_without_right_and_wrong_rows_are_named() -> None:
    texts = ["the king sings", "the cow sings"]
    scores = [translation(run, texts, texts) for run in ("m", "l", "both")]
    assert co_failures(RUNS, scores) == []
    table = gain_table([], {"mt": metric_named("bleu_13a")})
    assert "- mt: BLEU" in table.markdown and "no right and wrong rows" in table.markdown
    assert "method single" not in table.markdown  # each of its models has such a run
    table = gain_table([], {"mt": metric_named("bleu_13a"), "qa": metric_named("exact_match")})
    assert "No ensemble has a run of method single" in table.markdown


def test_the_table_shows_counts_beside_their_rows() -> None:
    table = gain_table(co_failures(RUNS, [M, L, BOTH]), {"qa": metric_named("exact_match")})
    assert "| qa | both | 25 | 44.0 | 60.0 | 64.0 | 40.0 [21.1, 61.3] | 3 of 10 | 2 of 6 |" in (
        table.markdown
    )
    assert "## Strict scoring" in table.markdown and "no co-failure" not in table.markdown
    head, row = to_csv(table).splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=True))["beta"] == "40.0000"
