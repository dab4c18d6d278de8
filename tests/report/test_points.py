"""Points as CSV."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.report.experiments import (
    DifferencePoint,
    RunName,
    ScorePoint,
    SweepPoint,
    points_table,
)
from adafuse.report.tables import to_csv

SCORE = ScorePoint(
    "a", "adafuse", "m+l", "", "qa", "strict", "exact_match", 3, 200 / 3, 20.0, None, None, ""
)
DIFFERENCE = DifferencePoint(
    "a", "adafuse", "m+l", "", "qa", "strict", "exact_match", 3, "b", "b (oracle)",
    -1 / 3, -2.0, 1.0, "McNemar exact", 0.000123456, 1.0, False,
)  # fmt: skip


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_percent_has_four_decimals_and_what_is_missing_is_empty() -> None:
    (row,) = read(to_csv(points_table([SCORE])))
    assert list(row)[:4] == ["benchmark", "protocol", "run", "method"]
    assert (row["value"], row["low"], row["high"], row["n"]) == ("66.6667", "20.0000", "", "3")


def test_points_of_two_kinds_share_a_table_and_their_columns() -> None:
    score, difference = read(to_csv(points_table([SCORE, DIFFERENCE])))
    assert score["against"] == score["p_holm"] == difference["value"] == ""
    assert (difference["against"], difference["difference"]) == ("b", "-0.3333")
    assert (difference["p"], difference["significant"]) == ("0.0001235", "false")
    assert "against_label" not in difference


@given(st.text(st.characters(exclude_categories=("C",))), st.floats(-1e6, 1e6))
def test_what_was_written_is_read_back(title: str, x: float) -> None:
    point = SweepPoint("r", "m", "m", "", title, "strict", title, "tau", x, "em", 5, 1.0, 0.0, 2.0)
    (row,) = read(to_csv(points_table([point])))
    assert (row["benchmark"], row["series"]) == (title, title)
    assert float(row["x"]) == x


@pytest.mark.parametrize(("selection", "label"), [("", "r"), ("oracle", "r (oracle)")])
def test_a_label_says_how_a_run_was_chosen(selection: str, label: str) -> None:
    assert RunName("r", "best_of", "m+l", selection).label == label
