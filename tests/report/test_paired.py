"""All pairs of runs."""

import pytest

from adafuse.metrics.paired import PairedCounts, holm, mcnemar_exact, newcombe

RIGHT = {"m": "1" * 30 + "0" * 10, "l": "0" * 25 + "1" * 15, "oracle": "1" * 40}


def pairs(points):
    """Scores, and then the comparisons."""
    return [p for p in points if p.against is None], [p for p in points if p.against]


def test_every_pair_is_tested_and_adjusted_for_all_pairs_of_the_benchmark(world) -> None:
    for run, right in RIGHT.items():
        world.score("squad", run, right)
    scores, points = pairs(world.points("paired", ["squad"], ["m", "l", "oracle"]))
    assert [p.run for p in scores] == ["m", "l", "oracle"]
    assert [(p.run, p.against) for p in points] == [("m", "l"), ("m", "oracle"), ("l", "oracle")]
    counts = PairedCounts(both=5, wins=25, losses=10, neither=0)
    assert points[0].difference == pytest.approx(100 * 15 / 40)
    interval = (points[0].difference_low, points[0].difference_high)
    assert interval == pytest.approx([100 * end for end in newcombe(counts)])
    p_values = [mcnemar_exact(25, 10), mcnemar_exact(0, 10), mcnemar_exact(0, 25)]
    assert [p.p for p in points] == p_values
    assert [p.p_holm for p in points] == holm(p_values)
    assert all(p.significant for p in points)


def test_each_benchmark_and_protocol_is_adjusted_on_its_own(world) -> None:
    world.protocols = ("strict", "published")
    for protocol in world.protocols:
        for benchmark in ("squad", "nq"):
            for run in ("m", "l"):
                world.score(benchmark, run, RIGHT[run], protocol)
    _, points = pairs(world.points("paired", ["squad", "nq"], ["m", "l"]))
    assert [p.p_holm for p in points] == [mcnemar_exact(25, 10)] * 4
