"""Tables of experiments as CSV."""

import csv
import io

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from adafuse.report.experiments import paired
from adafuse.report.tables import Table, to_csv


def read(table: pl.DataFrame) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(Table(table.columns, table.rows())))))


def test_percent_has_four_decimals_and_what_is_missing_is_empty() -> None:
    row = {"benchmark": "qa", "selection": "", "n": 3, "value": 200 / 3, "low": 20.0, "high": None}
    (found,) = read(pl.DataFrame([row]))
    assert list(found.values()) == ["qa", "", "3", "66.6667", "20.0000", ""]


def test_scores_and_differences_share_a_table_and_their_columns(world) -> None:
    for run, right in (("m", "110"), ("oracle", "111")):
        world.score("squad", run, right)
    rows = read(paired(world.experiment("paired", ["squad"], ["m", "oracle"])))
    score, _, difference = rows
    assert list(score)[:4] == ["benchmark", "protocol", "run", "method"]
    assert score["against"] == score["p_holm"] == difference["value"] == ""
    assert (difference["against"], difference["difference"]) == ("oracle", "-33.3333")
    assert (difference["models"], difference["p"], difference["significant"]) == ("m", "1", "false")


def test_p_values_have_ten_digits_and_seconds_six() -> None:
    (row,) = read(pl.DataFrame([{"p": 0.000123456, "seconds_mean": 1 / 3}]))
    assert row == {"p": "0.000123456", "seconds_mean": "0.333333"}


@given(st.text(st.characters(exclude_categories=("C",))), st.floats(-1e6, 1e6))
def test_what_was_written_is_read_back(title: str, x: float) -> None:
    (row,) = read(pl.DataFrame([{"benchmark": title, "series": title, "x": x}]))
    assert (row["benchmark"], row["series"]) == (title, title)
    assert float(row["x"]) == x
