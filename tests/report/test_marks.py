"""Marks of significance in the main table."""

from typing import Any

from adafuse.metrics.compare import Comparison
from adafuse.report.contents import marks
from adafuse.report.tables import comparison_table, read_comparisons, to_csv


def comparison(role: str, **changes: Any) -> Comparison:
    values: dict[str, Any] = {
        "benchmark": "qa", "protocol": "strict", "run": "fused", "against": "other", "role": role,
        "metric": "accuracy", "n": 100, "value": 80.0, "other": 60.0, "difference": 20.0,
        "low": 10.0, "high": 30.0, "test": "McNemar exact", "p": 0.001, "p_holm": 0.01,
        "wins": 25, "losses": 5,
    }  # fmt: skip
    return Comparison(**(values | changes))


CELL = ("strict", "qa", "fused")


def test_better_than_all_members_is_marked() -> None:
    assert marks([comparison("member"), comparison("member")]) == {CELL: "*"}


def test_better_than_the_members_that_are_there_is_no_mark() -> None:
    assert marks([comparison("member, others missing")]) == {}


def test_one_member_that_is_as_good_takes_the_mark_away() -> None:
    assert marks([comparison("member"), comparison("member", p_holm=0.2)]) == {}
    assert marks([comparison("member"), comparison("member", low=-1.0)]) == {}


def test_significantly_worse_is_no_mark() -> None:
    worse = comparison("member", difference=-20.0, low=-30.0, high=-10.0)
    assert marks([worse]) == {}


def test_better_than_the_best_baseline_has_a_mark_of_its_own() -> None:
    assert marks([comparison("best baseline")]) == {CELL: "†"}
    assert marks([comparison("member"), comparison("best baseline")]) == {CELL: "*†"}


def test_a_mark_at_the_border_is_the_same_after_the_csv() -> None:
    (border,) = compared = [comparison("member", p_holm=0.0499997)]
    assert border.significant
    assert marks(read_comparisons(to_csv(comparison_table(compared, {})))) == {CELL: "*"}


def test_comparisons_come_back_from_their_csv() -> None:
    bleu = comparison("member", wins=None, losses=None, test="bootstrap")
    assert read_comparisons(to_csv(comparison_table([comparison("best baseline"), bleu], {}))) == [
        comparison("best baseline"),
        bleu,
    ]
