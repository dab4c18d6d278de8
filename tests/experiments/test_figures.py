"""What is in the figures: panels, marks, labels; nothing cut off, nothing too small."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from itertools import pairwise

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from adafuse.experiments.draw_paired import draw_paired
from adafuse.experiments.draw_runtime import draw_runtime
from adafuse.experiments.draw_scores import draw_scores
from adafuse.experiments.draw_sweep import draw_sweep
from adafuse.experiments.draw_words import draw_words
from adafuse.experiments.points import (
    MACRO_AVERAGE,
    DifferencePoint,
    RuntimePoint,
    ScorePoint,
    SweepPoint,
    WordsPoint,
)
from adafuse.experiments.style import balanced, broken, stored, styled

LONG = "adafuse_with_a_name_that_needs_more_than_one_line"
RUNS = ("m", "l", LONG, "oracle")
BENCHMARKS = ("natural_questions", "squad", "gsm8k")


@pytest.fixture(autouse=True)
def _style() -> Iterator[None]:
    with styled():
        yield


def names(run: str) -> dict[str, str]:
    selection = "oracle" if run == "oracle" else ""
    return {"run": run, "method": "adafuse", "models": "m+l", "selection": selection}


def score(run: str, benchmark: str, protocol: str, **more) -> ScorePoint:
    given = {"metric": "exact_match", "n": 2500, "value": 50.0, "low": 45.0, "high": 55.0}
    given |= {"paper": None, "paper_row": "", "benchmark": benchmark, "protocol": protocol}
    return ScorePoint(**names(run), **(given | more))


SCORES = [
    score(run, benchmark, protocol)
    for protocol in ("strict", "published")
    for benchmark in BENCHMARKS
    for run in RUNS
]


def sweep(x: float, series: str = "adafuse", benchmark: str = "squad", protocol: str = "strict"):
    rest = {"option": "tau", "metric": "exact_match", "n": 10}
    place = {"benchmark": benchmark, "protocol": protocol, "series": series, "x": x}
    return SweepPoint(**names(f"t{x}"), **place, **rest, value=50.0 + x, low=49.0, high=52.0)


def runtime(run: str, factor: float | None = None, **more) -> RuntimePoint:
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
    return RuntimePoint(
        **names(run), **(place | times | job | {"torch": "2", "timed": True} | more)
    )


def words(run: str, shares: tuple[float, ...], benchmark: str = "nq") -> list[WordsPoint]:
    return [
        WordsPoint(**names(run), benchmark=benchmark, words=count, rounds=1, n=1234, share=share,
                   low=0.0, high=100.0, wordless=0)
        for count, share in enumerate(shares, start=1)
    ]  # fmt: skip


def difference(against: str, significant: bool, benchmark: str = "nq") -> DifferencePoint:
    return DifferencePoint(
        **names("m"), benchmark=benchmark, protocol="strict", metric="exact_match", n=10,
        against=against, against_label=against, difference=3.0, difference_low=1.0,
        difference_high=5.0, test="McNemar exact", p=0.01, p_holm=0.02, significant=significant,
    )  # fmt: skip


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
    "paired": lambda: draw_paired("Fusion", [difference(LONG, True), difference("l", False)]),
}


def written(figure: Figure) -> str:
    """All text that is drawn, a line for each of its lines."""
    return unescape("\n".join(re.findall(r">([^<>]+)</t", stored(figure, "svg").decode())))


def marks(axes: Axes) -> list[tuple[float, str, bool]]:
    """Value, marker, and whether it is filled."""
    dots = [line for line in axes.lines if line.get_linestyle() == "None"]
    return [
        (float(d.get_xdata()[0]), str(d.get_marker()), to_hex(d.get_markerfacecolor()) != "#ffffff")
        for d in dots
    ]


@pytest.mark.parametrize("kind", ALL)
def test_nothing_is_cut_off_and_no_text_is_small(kind: str) -> None:
    figure = ALL[kind]()
    figure.draw_without_rendering()
    box = figure.get_tightbbox()
    assert box.x0 >= 0 and box.x1 <= figure.get_figwidth()
    assert box.y0 >= 0 and box.y1 <= figure.get_figheight()
    assert min(text.get_fontsize() for text in figure.findobj(Text)) >= 8


@pytest.mark.parametrize("kind", ALL)
def test_title_legend_panels_and_caption_do_not_overlap(kind: str) -> None:
    figure = ALL[kind]()
    figure.draw_without_rendering()
    parts = [figure._suptitle, *figure.legends]
    panels = [axes.get_tightbbox() for axes in figure.axes]
    heights = [part.get_window_extent() for part in parts]
    lowest_above = min(extent.y0 for extent in heights)
    assert all(panel.y1 <= lowest_above for panel in panels)
    assert all(upper.y0 >= lower.y1 for upper, lower in pairwise(heights))
    (caption,) = [text for text in figure.texts if text is not figure._suptitle]
    assert all(panel.y0 >= caption.get_window_extent().y1 for panel in panels)


@pytest.mark.parametrize("kind", ALL)
def test_the_same_points_give_the_same_svg_with_text_as_text(kind: str) -> None:
    first, second = stored(ALL[kind](), "svg"), stored(ALL[kind](), "svg")
    assert first == second
    assert b"<text" in first and b"date" not in first.lower().split(b"<defs>")[0]


def test_scores_have_a_panel_per_benchmark_and_a_mark_per_run_and_protocol() -> None:
    figure = draw_scores("Table 1", SCORES)
    assert [axes.get_title("left") for axes in figure.axes] == [
        f"{name}\nexact match, n = 2,500" for name in BENCHMARKS
    ]
    for axes in figure.axes:
        assert [marker for _, marker, _ in marks(axes)] == ["o"] * 4 + ["s"] * 4
        assert len(axes.collections) == 8  # interval bars
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert [label.replace("\n", "") for label in labels] == ["m", "l", LONG, "oracle (oracle)"]
    assert all(len(line) <= 24 for label in labels for line in label.split("\n"))
    assert "score in percent" in written(figure) and "95 % intervals" in written(figure)


def test_oracles_are_hollow_and_explained() -> None:
    figure = draw_scores("Table 1", SCORES)
    assert [filled for _, _, filled in marks(figure.axes[0])] == [True, True, True, False] * 2
    assert "with the answers of the very rows" in written(figure).replace("\n", " ")
    assert "answers" not in written(draw_scores("Table 1", [score("m", "squad", "strict")]))


def test_the_papers_values_are_crosses_that_say_with_what_they_compare() -> None:
    paper = score("m", "squad", "published", paper=61.5)
    figure = draw_scores("Table 1", [score("m", "squad", "strict"), paper])
    assert [value for value, marker, _ in marks(figure.axes[0]) if marker == "x"] == [61.5]
    assert "compare with published scoring only" in written(figure)


def test_a_panel_says_where_protocols_score_different_rows() -> None:
    strict = score("m", "squad", "strict", n=2495)
    figure = draw_scores("Table 1", [strict, score("m", "squad", "published")])
    assert "n = 2,495 (strict)\nn = 2,500 (published)" in figure.axes[0].get_title("left")


def test_small_differences_of_averages_do_not_fill_the_panel() -> None:
    values = {"low": None, "high": None, "n": None}
    close = [
        score(run, MACRO_AVERAGE, "strict", value=value, **values)
        for run, value in (("m", 50.0), ("l", 50.1))
    ]
    low, high = draw_scores("Table 1", close).axes[0].get_xlim()
    assert high - low == pytest.approx(10)


def test_a_sweep_has_a_panel_per_protocol_and_benchmark_and_a_line_per_series() -> None:
    points = [
        sweep(x, series, benchmark, protocol)
        for protocol in ("strict", "published")
        for benchmark in BENCHMARKS
        for series in ("one", "other")
        for x in (0.0, 0.5, 1.0)
    ]
    figure = draw_sweep("Figure 6", points)
    assert len(figure.axes) == 6
    for axes in figure.axes:
        assert [list(line.get_xdata()) for line in axes.lines] == [[0.0, 0.5, 1.0]] * 2
        assert len(axes.collections) == 2  # bands
        below, above = axes.lines  # where both agree, both are seen
        assert (below.get_linestyle(), above.get_linestyle()) == ("-", "--")
        assert below.get_markersize() > above.get_markersize()
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("tau", "score in percent")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["one", "other"]


def test_a_single_series_has_no_legend_and_whole_values_get_a_tick_each() -> None:
    figure = draw_sweep("Figure 4", [replace(sweep(1), x=x, option="words") for x in (1, 2, 4)])
    assert figure.legends == []
    assert list(figure.axes[0].get_xticks()) == [1, 2, 4]


def test_options_of_two_methods_are_both_named() -> None:
    other = replace(sweep(2, "beams"), option="width", method="beam_scaling")
    figure = draw_sweep("Figure 7", [sweep(1), other])
    assert figure.axes[0].get_xlabel() == "tau (adafuse)\nwidth (beam_scaling)"


def test_runtime_shows_median_mean_and_the_relation_to_the_models() -> None:
    figure = draw_runtime("Figure 5", [runtime("m"), runtime("both", 1.5)])
    assert marks(figure.axes[0]) == [(1.0, "o", True), (1.2, "D", True)] * 2
    text = written(figure)
    assert "1.50\N{MULTIPLICATION SIGN}" in text and "Batch size 1, float32, device cuda" in text
    assert "seconds per example" in text and "nq\nn = 200" in text
    assert "Other jobs" not in text and "share their time" not in text


def test_runtime_that_is_no_clean_measurement_says_so() -> None:
    text = written(draw_runtime("Figure 5", [runtime("m", batch_size=8, timed=False)]))
    assert "share their time" in text and "Other jobs may have run" in text


def test_words_are_stacked_to_100_percent_and_written_where_they_fit() -> None:
    points = words("m", (60.0, 39.0, 1.0)) + words("l", (0.0, 0.0, 100.0))
    axes = draw_words("Words", points).axes[0]
    bars = sorted((bar.get_y(), bar.get_x(), bar.get_width()) for bar in axes.patches)
    assert [bar[1:] for bar in bars] == [(0, 60), (60, 39), (99, 1), (0, 0), (0, 0), (0, 100)]
    assert [text.get_text() for text in axes.texts] == ["60", "39", "100"]
    assert written(axes.figure).count("n = 1,234") == 2


def test_differences_are_filled_where_they_are_significant() -> None:
    figure = draw_paired("Fusion", [difference("l", True), difference("both", False)])
    (axes,) = figure.axes
    assert marks(axes) == [(3.0, "o", True), (3.0, "o", False)]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["m\n\N{MINUS SIGN} l", "m\n\N{MINUS SIGN} both"]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "-"] == [0]


def test_matplotlib_is_loaded_only_to_draw() -> None:
    code = "import sys, adafuse.experiments.build; assert 'matplotlib' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_figures_grow_with_the_number_of_runs() -> None:
    few = draw_scores("Table 1", SCORES[:1]).get_figheight()
    many = draw_scores("Table 1", [score(f"r{i}", "squad", "strict") for i in range(30)])
    assert many.get_figheight() > 3 * few


def test_names_are_broken_without_losing_a_character() -> None:
    assert broken("short", 24) == "short"
    assert broken(LONG, 24).replace("\n", "") == LONG
    assert broken("one two", 4) == "one\ntwo"


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (4, 4), (5, 3), (7, 4), (9, 3)])
def test_rows_of_panels_are_filled_evenly(count: int, columns: int) -> None:
    assert balanced(count, 4) == columns
