"""Charts: valid Vega-Lite that holds every number, for all that is pointed at."""

from typing import Any

import vl_convert

from adafuse.comparison.words_per_round import WordShare
from adafuse.report.charts import scores_chart, seconds_chart, words_chart
from adafuse.report.facts import Cost
from adafuse.scoring.intervals import Estimate
from adafuse.scoring.score import Score
from adafuse.scoring.table import build_table


def values(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return spec["datasets"][spec["data"]["name"]]


def drawn(spec: dict[str, object]) -> str:
    return vl_convert.vegalite_to_svg(spec)


def test_scores_of_both_protocols_are_drawn_with_their_intervals() -> None:
    def score(run: str, protocol: str) -> Score:
        value = {"accuracy": Estimate(50.0, 40.0, 60.0)}
        return Score("qa", run, protocol, 90, 0, 0, 0, 0, value, "accuracy", {})

    runs = {"a": ("single", ["m"]), "b": ("adafuse", ["m", "l"])}
    tables = {
        name: build_table(["qa"], runs, [score(run, name) for run in runs], None)
        for name in ("strict", "published")
    }
    spec = scores_chart(tables)
    assert len(values(spec)) == 4
    assert values(spec)[3]["models"] == "m+l"
    assert {field["field"] for field in spec["spec"]["layer"][0]["encoding"]["tooltip"]} >= {
        "run", "score", "low", "high", "n",
    }  # fmt: skip
    svg = drawn(spec)
    assert "qa (accuracy)" in svg and "published" in svg


def test_seconds_leave_out_runs_without_a_decoded_example() -> None:
    good = Cost("qa", "a", 10, 1, Estimate(0.5, 0.4, 0.6), 20.0, 25.0)
    spec = seconds_chart([good, Cost("qa", "b", 1, 1, None, None, None)])
    assert [row["n"] for row in values(spec)] == [9]
    assert "seconds per example" in drawn(spec)


def test_words_are_stacked_to_a_hundred_percent() -> None:
    shares = [WordShare("qa", "a", words, 5, 10, 50.0, 30.0, 70.0, 0) for words in (1, 2)]
    spec = words_chart(shares)
    assert sum(row["share"] for row in values(spec)) == 100
    assert "percent of rounds" in drawn(spec)


def test_nothing_to_draw_is_an_empty_chart() -> None:
    for spec in (scores_chart({}), seconds_chart([]), words_chart([])):
        assert values(spec) == []
