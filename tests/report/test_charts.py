"""The report's charts: valid Vega-Lite that holds every number of what is pointed at."""

import json
from typing import Any

import vl_convert

from adafuse.metrics.intervals import Estimate
from adafuse.metrics.measures import Cost, WordShare
from adafuse.metrics.score import Score
from adafuse.report.figures import page_scores, page_seconds, page_words
from adafuse.report.main_table import build_table


def values(spec: dict[str, Any], field: str) -> list[dict[str, Any]]:
    return [row for rows in spec["datasets"].values() for row in rows if field in row]


def drawn(spec: dict[str, object]) -> str:
    return vl_convert.vegalite_to_svg(spec)


def test_scores_of_both_protocols_are_drawn_with_their_intervals() -> None:
    def score(run: str, protocol: str) -> Score:
        value = {"exact_match": Estimate(50.0, 40.0, 60.0)}
        return Score("qa", run, protocol, 90, 0, 0, 0, 0, value, "exact_match", {})

    runs = {"a": ("single", ["m"]), "b": ("adafuse", ["m", "l"])}
    tables = {
        name: build_table(["qa"], runs, [score(run, name) for run in runs], None)
        for name in ("strict", "published")
    }
    spec = page_scores(tables)
    assert len(values(spec, "scored")) == 4
    assert values(spec, "scored")[3]["models"] == "m+l"
    tooltips = json.dumps(spec["concat"][0]["layer"][0]["encoding"]["tooltip"])
    assert all(f'"{name}"' in tooltips for name in ("row", "value", "low", "high", "n", "models"))
    svg = drawn(spec)
    assert "qa (exact match)" in svg and "published" in svg


def test_an_interval_may_be_the_first_after_a_hundred_scores_without_one() -> None:
    names = [f"r{number}" for number in range(100)]
    few, whole = {"f1": Estimate(50.0)}, {"f1": Estimate(50.0, 40.0, 60.0)}
    scores = [Score("few", run, "strict", 9, 0, 0, 0, 0, few, "f1", {}) for run in names]
    scores.append(Score("qa", names[0], "strict", 90, 0, 0, 0, 0, whole, "f1", {}))
    runs = {run: ("single", ["m"]) for run in names}
    spec = page_scores({"strict": build_table(["few", "qa"], runs, scores, None)})
    assert [row["low"] for row in values(spec, "scored") if row["low"] is not None] == [40]


def test_seconds_leave_out_runs_without_a_decoded_example() -> None:
    good = Cost("qa", "a", 10, 1, Estimate(0.5, 0.4, 0.6))
    spec = page_seconds([good, Cost("qa", "b", 1, 1)])
    assert [row["n"] for row in values(spec, "n")] == [9]
    assert "seconds per example" in drawn(spec)


def test_words_are_stacked_to_a_hundred_percent() -> None:
    shares = [WordShare("qa", "a", words, 5, 10, 50.0, 30.0, 70.0, 0) for words in (1, 2)]
    spec = page_words(shares)
    assert sum(row["share"] for row in values(spec, "rounds") if "middle" not in row) == 100
    assert "share of rounds in percent" in drawn(spec)


def test_nothing_to_draw_is_no_chart() -> None:
    for spec in (page_scores({}), page_seconds([]), page_words([])):
        assert spec == {}
