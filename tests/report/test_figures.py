"""What the figures show: panels, marks, labels; nothing overlaps, nothing is too small."""

import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import polars as pl
import pytest
from playwright.sync_api import Browser

from adafuse.report import figures
from adafuse.report.charts import FONT, WIDTH, Spec, balanced, broken, rendered
from adafuse.report.experiments import MACRO_AVERAGE

LONG = "adafuse_with_a_name_that_needs_more_than_one_line"
RUNS = ("m", "l", LONG, "oracle")
BENCHMARKS = ("natural_questions", "squad", "gsm8k")


Point = dict[str, Any]


def drawn(draw: Callable[[str, pl.DataFrame], Spec]) -> Callable[[str, list[Point]], Spec]:
    return lambda title, points: draw(title, pl.DataFrame(points, infer_schema_length=None))


draw_paired, draw_runtime = drawn(figures.draw_paired), drawn(figures.draw_runtime)
draw_scores, draw_sweep = drawn(figures.draw_scores), drawn(figures.draw_sweep)
draw_words = drawn(figures.draw_words)


def names(run: str) -> dict[str, str]:
    selection = "oracle" if run == "oracle" else ""
    return {"run": run, "method": "adafuse", "models": "m+l", "selection": selection}


def score(run: str, benchmark: str, protocol: str, **more) -> Point:
    given = {"metric": "exact_match", "n": 2500, "value": 50.0, "low": 45.0, "high": 55.0}
    given |= {
        "failed": 0,
        "paper": None,
        "paper_row": "",
        "benchmark": benchmark,
        "protocol": protocol,
    }
    return names(run) | given | more


SCORES = [
    score(run, benchmark, protocol)
    for protocol in ("strict", "published")
    for benchmark in BENCHMARKS
    for run in RUNS
]


def sweep(x: float, series: str = "adafuse", benchmark: str = "squad", protocol: str = "strict"):
    rest = {"option": "tau", "metric": "exact_match", "n": 10, "failed": 0}
    place = {"benchmark": benchmark, "protocol": protocol, "series": series, "x": x}
    values = {"value": 50.0 + x, "low": 49.0, "high": 52.0}
    return names(f"t{x}") | place | rest | values


def runtime(run: str, factor: float | None = None, **more) -> Point:
    place = {"benchmark": "nq", "n": 200, "failed": 0, "mean_relative_to_members": factor}
    times = {
        "seconds_median": 1.0,
        "seconds_quartile_1": 0.5,
        "seconds_quartile_3": 2.0,
        "seconds_mean": 1.2,
        "seconds_mean_low_bootstrap95": 1.1,
        "seconds_mean_high_bootstrap95": 1.3,
    }
    job = {"batch_size": 1, "dtype": "float32", "devices": "cuda:0", "engine": "tree"}
    return names(run) | place | times | job | {"torch": "2", "timed": True} | more


def words(run: str, shares: tuple[float, ...], benchmark: str = "nq") -> list[Point]:
    return [
        names(run) | {"benchmark": benchmark, "words": count, "rounds": 1, "n": 1234}
        | {"share": share, "low": 0.0, "high": 100.0, "wordless": 0}
        for count, share in enumerate(shares, start=1)
    ]  # fmt: skip


def difference(against: str, significant: bool, benchmark: str = "nq") -> Point:
    compared = {"benchmark": benchmark, "protocol": "strict", "metric": "exact_match", "n": 10}
    compared["failed"] = None
    ends = {"difference": 3.0, "difference_low": 1.0, "difference_high": 5.0}
    return names("m") | compared | ends | {"against": against, "significant": significant}


EQUAL = ("equal_forwards", "equal_forwards_value")
COSTS = [
    score(run, "nq", "strict", value=40.0 + place, best=place > 1)
    | {"forwards_per_token": None if run == "oracle" else 1.0 + place / 4, "seconds_mean": 1.0}
    | {"earlier": None if run == "oracle" else place % 2, "forwards": 9.0, "evaluated": None}
    | dict(zip(EQUAL, ("m", 41.0) if place > 2 else (None, None), strict=True))
    for place, run in enumerate(RUNS)
]

WORDY = [
    f"mistral_7b+llama_8b, weights (1.0, {k}.0), max_words 3, branching {k}, fusion most_confident,"
    " max_word_tokens 16"
    for k in (1, 2)
]
ALL = {
    "scores": lambda: draw_scores("Table 1", SCORES),
    "sweep": lambda: draw_sweep("Figure 6", [sweep(x / 10) for x in range(11)]),
    "sweep with long labels": lambda: draw_sweep("Figure 6", [sweep(1, name) for name in WORDY]),
    "runtime": lambda: draw_runtime("Figure 5", [runtime(run, 1.5) for run in RUNS]),
    "words": lambda: draw_words("Words", [p for run in RUNS for p in words(run, (20, 30, 50))]),
    "frontier": lambda: drawn(figures.draw_frontier)("Quality and cost", COSTS),
    "paired": lambda: draw_paired("Fusion", [difference(LONG, True), difference("l", False)]),
}


def written(figure: Spec) -> str:
    """All text that is drawn, a line for each of its lines."""
    return unescape("\n".join(re.findall(r">([^<>]+)</t", rendered(figure, "svg").decode())))


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a specification."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from nodes(each)


def panels(figure: Spec) -> list[dict[str, Any]]:
    """The panels, each with its data in place of their names."""
    found = [node for node in nodes(figure) if "layer" in node]
    for node in nodes(found):
        if "name" in node.get("data", {}):
            node["values"] = figure["datasets"][node["data"]["name"]]
    return found


def marks(panel: dict[str, Any]) -> list[dict[str, Any]]:
    """The values of a panel's marks, however many layers draw them."""
    values = next(
        each["values"] for each in nodes(panel) if "height" in each.get("values", [{}])[0]
    )
    return [value for value in values if "value" in value]


def titles(figure: Spec) -> list[list[str]]:
    return [panel["title"]["text"] for panel in panels(figure)]


def axis(panel: dict[str, Any], channel: str) -> dict[str, Any]:
    layers = [node["encoding"] for node in nodes(panel) if "encoding" in node]
    found = [each[channel] for each in layers if channel in each]
    return next(each["axis"] | each for each in found if each.get("axis"))


BOXES = """[...document.querySelectorAll('text')].filter((text) => text.textContent).map((text) => {
  const box = text.getBoundingClientRect();
  return [text.textContent, box.left, box.top, box.right, box.bottom];
})"""


@pytest.mark.parametrize("kind", ALL)
def test_no_label_is_cut_off_or_lies_on_another(kind: str, browser: Browser) -> None:
    svg = rendered(ALL[kind](), "svg").decode()
    page = browser.new_page(viewport={"width": 1000, "height": 1500})
    page.set_content(f"<body style='margin:0'>{svg}</body>")
    boxes = page.evaluate(BOXES)
    found = re.search(r'width="(\d+)" height="(\d+)"', svg)
    width, height = map(int, found.groups())
    page.close()
    assert width <= WIDTH + 5
    for text, left, top, right, bottom in boxes:
        assert left >= -1 and right <= width + 1 and top >= -1 and bottom <= height + 1, text
    for number, (text, *one) in enumerate(boxes):
        for other, *two in boxes[number + 1 :]:
            wide = min(one[2], two[2]) - max(one[0], two[0])
            high = min(one[3], two[3]) - max(one[1], two[1])
            assert wide < 2 or high < 3, (text, other)


def test_a_figure_names_the_rows_that_failed_once() -> None:
    failed = [{**each, "failed": 3 * (each["run"] == "m")} for each in SCORES]
    sentence = "Rows that failed, counted as wrong: m on "
    counts = ", m on ".join(f"{name} (3)" for name in BENCHMARKS)
    paired = [*failed, difference("l", True)]
    for figure in (draw_scores("Scores", failed), draw_paired("Pairs", paired)):
        assert f"{sentence}{counts}." in written(figure).replace("\n", " ")
    assert "Rows that failed" not in written(draw_scores("Scores", SCORES))


@pytest.mark.parametrize("kind", ALL)
def test_the_same_points_give_the_same_svg_with_readable_text_as_text(kind: str) -> None:
    first, second = rendered(ALL[kind](), "svg"), rendered(ALL[kind](), "svg")
    assert first == second
    sizes = {float(size) for size in re.findall(rb'font-size="([\d.]+)px"', first)}
    assert b"<text" in first and min(sizes) >= FONT > 8 * 96 / 72


def test_a_png_has_200_dots_per_inch() -> None:
    figure = draw_scores("Table 1", SCORES)
    svg = rendered(figure, "svg").decode()
    width = int(re.search(r'width="(\d+)"', svg)[1])
    (pixels,) = struct.unpack(">I", rendered(figure, "png")[16:20])  # of the header chunk
    assert pixels == pytest.approx(width * 200 / 96, abs=2)


def test_scores_have_a_panel_per_benchmark_and_a_mark_per_run_and_protocol() -> None:
    figure = draw_scores("Table 1", SCORES)
    assert titles(figure) == [[name, "exact match, n = 2,500"] for name in BENCHMARKS]
    for panel in panels(figure):
        found = [(each["row"], each["scored"], each["low"], each["high"]) for each in marks(panel)]
        assert found == [
            (label, f"{protocol} scoring", 45.0, 55.0)
            for protocol in ("strict", "published")
            for label in ("m", "l", LONG, "oracle (oracle)")
        ]
    text = written(figure)
    assert "score in percent" in text and "95 % intervals" in text
    assert LONG in text.replace("\n", "") and max(map(len, text.split("\n"))) < 130


def test_oracles_are_hollow_and_explained() -> None:
    figure = draw_scores("Table 1", SCORES)
    assert [each["hollow"] for each in marks(panels(figure)[0])] == [False, False, False, True] * 2
    assert "with the answers of the very rows" in written(figure).replace("\n", " ")
    assert "answers" not in written(draw_scores("Table 1", [score("m", "squad", "strict")]))


def test_published_scores_of_oracles_are_no_upper_bounds() -> None:
    said, strict = "need not be upper bounds", [s for s in SCORES if s["protocol"] == "strict"]
    assert said in written(draw_scores("Table 1", SCORES)).replace("\n", " ")
    assert said not in written(draw_scores("Table 1", strict)).replace("\n", " ")
    alone = draw_scores("Table 1", [score("m", "squad", "published")])
    assert said not in written(alone).replace("\n", " ")


def test_the_papers_values_are_crosses_that_say_with_what_they_compare() -> None:
    paper = score("m", "squad", "published", paper=61.5)
    figure = draw_scores("Table 1", [score("m", "squad", "strict"), paper])
    (cross,) = [each for each in marks(panels(figure)[0]) if "paper" in each["scored"]]
    assert (cross["value"], cross["low"]) == (61.5, None)
    assert "compare with published scoring only" in written(figure)


def test_a_panel_says_where_protocols_score_different_rows() -> None:
    strict = score("m", "squad", "strict", n=2495)
    figure = draw_scores("Table 1", [strict, score("m", "squad", "published")])
    assert titles(figure)[0][-2:] == ["n = 2,495 (strict)", "n = 2,500 (published)"]


def test_small_differences_of_averages_do_not_fill_the_panel() -> None:
    values = {"low": None, "high": None, "n": None}
    close = [
        score(run, MACRO_AVERAGE, "strict", value=value, **values)
        for run, value in (("m", 50.0), ("l", 50.1))
    ]
    low, high = axis(panels(draw_scores("Table 1", close))[0], "x")["scale"]["domain"]
    assert high - low == pytest.approx(10, abs=0.1)


def test_a_sweep_has_a_panel_per_protocol_and_benchmark_and_a_line_per_series() -> None:
    points = [
        sweep(x, series, benchmark, protocol)
        for protocol in ("strict", "published")
        for benchmark in BENCHMARKS
        for series in ("one", "other")
        for x in (0.0, 0.5, 1.0)
    ]
    figure = draw_sweep("Figure 6", points)
    assert [title[1] for title in titles(figure)] == [
        f"{protocol} scoring, n = 10" for protocol in ("strict", "published") for _ in BENCHMARKS
    ]
    for panel in panels(figure):
        values = next(node["values"] for node in nodes(panel) if "values" in node)
        assert [(each["series"], each["x"]) for each in values] == [
            (series, x) for series in ("one", "other") for x in (0.0, 0.5, 1.0)
        ]
        # Where both agree, both are seen: the first is larger, the second is dashed.
        assert values[0]["size"] > values[-1]["size"]
        dashes = next(node["strokeDash"] for node in nodes(panel) if "strokeDash" in node)
        assert dashes["scale"]["range"][0] != dashes["scale"]["range"][1]
    text = written(figure)
    assert "tau" in text and "score in percent" in text
    assert text.count("\none\n") == text.count("\nother\n") == 1, "a legend names the series"


def test_a_single_series_has_no_legend_and_whole_values_get_a_tick_each() -> None:
    figure = draw_sweep("Figure 4", [sweep(1) | {"x": x, "option": "words"} for x in (1, 2, 4)])
    assert "adafuse" not in written(figure)
    assert axis(panels(figure)[0], "x")["values"] == [1, 2, 4]


def test_options_of_two_methods_are_both_named() -> None:
    other = sweep(2, "beams") | {"option": "width", "method": "beam_scaling"}
    figure = draw_sweep("Figure 7", [sweep(1), other])
    assert axis(panels(figure)[0], "x")["title"] == ["tau (adafuse)", "width (beam_scaling)"]


def test_runtime_shows_median_mean_and_the_relation_to_the_models() -> None:
    figure = draw_runtime("Figure 5", [runtime("m"), runtime("both", 1.5)])
    found = [(each["scored"][:6], each["value"]) for each in marks(panels(figure)[0])]
    assert found == [("median", 1.0)] * 2 + [("mean, ", 1.2)] * 2
    text = written(figure)
    assert "1.50\N{MULTIPLICATION SIGN}" in text and "Batch size 1, float32, device cuda" in text
    assert "seconds per example" in text and "nq\nn = 200" in text
    assert "Other jobs" not in text and "share their time" not in text


def test_runtime_that_is_no_clean_measurement_says_so() -> None:
    text = written(draw_runtime("Figure 5", [runtime("m", batch_size=8, timed=False)]))
    assert "share their time" in text and "Other jobs may have run" in text


def test_words_are_stacked_to_100_percent_and_written_where_they_fit() -> None:
    points = words("m", (60.0, 39.0, 1.0)) + words("l", (0.0, 0.0, 100.0))
    figure = draw_words("Words", points)
    bars, inside, *_ = panels(figure)[0]["layer"]
    assert [(each["row"], each["share"]) for each in bars["values"]] == [
        ("m", 60), ("m", 39), ("m", 1), ("l", 0), ("l", 0), ("l", 100),
    ]  # fmt: skip
    assert bars["encoding"]["x"]["stack"] == "zero"
    assert [(each["middle"], each["share"]) for each in inside["values"]] == [
        (30, 60), (79.5, 39), (50, 100),
    ]  # fmt: skip
    assert written(figure).count("n = 1,234") == 2


def test_differences_are_filled_where_they_are_significant() -> None:
    oracle = difference("l", True) | names("oracle") | {"against": None}
    tests = [oracle, difference("l", True), difference("both", False), difference("oracle", True)]
    (panel,) = panels(draw_paired("Fusion", tests))
    found = [(each["row"], each["value"], each["hollow"]) for each in marks(panel)]
    assert found == [
        ("m\n\N{MINUS SIGN} l", 3.0, False),
        ("m\n\N{MINUS SIGN} both", 3.0, True),
        ("m\n\N{MINUS SIGN} oracle (oracle)", 3.0, False),
    ]
    assert [{"x": 0}] in [node["values"] for node in nodes(panel) if "values" in node], (
        "a line at 0"
    )


def test_charts_are_loaded_only_to_draw() -> None:
    code = "import sys, adafuse.report.pages; assert 'altair' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_figures_grow_with_the_number_of_runs() -> None:
    def height(figure: Spec) -> int:
        return int(re.search(rb'height="(\d+)"', rendered(figure, "svg"))[1])

    many = draw_scores("Table 1", [score(f"r{i}", "squad", "strict") for i in range(30)])
    assert height(many) > 3 * height(draw_scores("Table 1", SCORES[:1]))


def test_names_are_broken_without_losing_a_character() -> None:
    assert broken("short", 24) == "short"
    assert broken(LONG, 24).replace("\n", "") == LONG
    assert broken("one two", 4) == "one\ntwo"


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (4, 4), (5, 3), (7, 4), (9, 3)])
def test_rows_of_panels_are_filled_evenly(count: int, columns: int) -> None:
    assert balanced(count, 4) == columns
