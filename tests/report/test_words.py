"""Words per round."""

import pytest

from adafuse.errors import UserError
from adafuse.metrics.intervals import wilson


def test_shares_of_each_run_and_benchmark_add_up(world) -> None:
    world.trace("nq", "both", words=(1, 3, 3, 0))
    world.trace("squad", "both", words=(2,))
    points = world.points("words_per_round", ["nq", "squad"], ["both"])
    assert [(p.benchmark, p.words, p.rounds, p.n, p.wordless) for p in points] == [
        ("nq", 1, 1, 3, 1),
        ("nq", 2, 0, 3, 1),
        ("nq", 3, 2, 3, 1),
        ("squad", 1, 0, 1, 0),
        ("squad", 2, 1, 1, 0),
        ("squad", 3, 0, 1, 0),
    ]
    assert (points[2].low, points[2].high) == pytest.approx([100 * end for end in wilson(2, 3)])
    assert points[2].models == "m+l"


def test_a_run_without_words_is_named(world) -> None:
    world.trace("nq", "both", words=(0,))
    with pytest.raises(UserError, match=r"leave run 'both' out of experiments.figure"):
        world.points("words_per_round", ["nq"], ["both"])
