"""Scores, their averages and the paper's values."""

import pytest

from adafuse.errors import UserError
from adafuse.metrics.intervals import wilson
from adafuse.report.experiments import MACRO_AVERAGE

PAPER = {"both": "AdaFuse fixed pair"}


def store_all(world, *, protocols=("strict",), benchmarks=("natural_questions", "squad")):
    world.protocols = protocols
    for protocol in protocols:
        for benchmark in benchmarks:
            world.score(benchmark, "m", "1100", protocol)
            world.score(benchmark, "both", "1110" if benchmark == "squad" else "1111", protocol)


def test_every_run_has_its_stored_score_on_every_benchmark(world) -> None:
    store_all(world)
    points = world.points("scores", ["squad"], ["both", "m"])
    assert [(p.run, p.value, p.n, p.metric) for p in points] == [
        ("both", 75.0, 4, "exact_match"),
        ("m", 50.0, 4, "exact_match"),
    ]
    assert (points[0].low, points[0].high) == tuple(100 * end for end in wilson(3, 4))


def test_failed_rows_are_counted_beside_each_score_and_average(world) -> None:
    for number, benchmark in enumerate(("natural_questions", "squad")):
        world.score(benchmark, "m", "1100", failed=number + 1)
    points = world.points("scores", ["natural_questions", "squad"], ["m"])
    assert [p.failed for p in points] == [1, 2, 3]


def test_the_macro_average_is_the_mean_of_the_runs_scores_and_has_no_interval(world) -> None:
    store_all(world, protocols=("strict", "published"))
    found = world.points("scores", ["natural_questions", "squad"], ["m", "both"])
    averages = [p for p in found if p.benchmark == MACRO_AVERAGE]
    assert [(p.protocol, p.run, p.value) for p in averages] == [
        ("strict", "m", 50.0),
        ("strict", "both", 87.5),
        ("published", "m", 50.0),
        ("published", "both", 87.5),
    ]
    assert {(p.low, p.high, p.n) for p in averages} == {(None, None, None)}


def test_the_papers_values_stand_only_beside_scores_of_its_protocol(world) -> None:
    store_all(world, protocols=("strict", "published"))
    points = world.points("scores", ["natural_questions", "squad"], ["m", "both"], published=PAPER)
    found = [p for p in points if p.paper is not None]
    assert [(p.protocol, p.run, p.benchmark) for p in found] == [
        ("published", "both", "natural_questions"),
        ("published", "both", "squad"),
        ("published", "both", MACRO_AVERAGE),
    ]
    assert [p.paper for p in found] == pytest.approx([42.85, 90.15, (42.85 + 90.15) / 2])


def test_a_benchmark_that_the_paper_lacks_has_no_value_of_it_and_no_average(world) -> None:
    store_all(world, protocols=("strict", "published"), benchmarks=("squad", "mine"))
    points = world.points("scores", ["squad", "mine"], ["both"], published=PAPER)
    found = [(p.benchmark, p.paper_row) for p in points if p.paper]
    assert found == [("squad", "AdaFuse fixed pair")]


def test_selections_say_by_what_they_chose(world) -> None:
    for run in ("m", "oracle", "top2"):
        world.score("squad", run, "10")
    points = world.points("scores", ["squad"], ["m", "oracle", "top2"])
    assert [p.selection for p in points] == ["", "oracle", "development"]


def test_scores_of_different_rows_do_not_share_a_panel(world) -> None:
    world.score("squad", "m", "1100")
    world.score("squad", "both", "110")
    with pytest.raises(UserError, match=r"strict scores of 'squad' cover \[3, 4\] rows"):
        world.points("scores", ["squad"], ["m", "both"])
