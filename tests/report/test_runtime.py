"""Seconds per example, and what may not be compared."""

import numpy as np
import pytest

from adafuse.errors import UserError


def test_the_numbers_are_those_of_the_stored_seconds(world) -> None:
    seconds = [0.1, 0.2, 0.4, 0.8, 2.0]
    world.trace("nq", "m", seconds)
    (point,) = world.points("runtime", ["nq"], ["m"])
    assert (point.n, point.seconds_median, point.seconds_mean) == (5, 0.4, pytest.approx(0.7))
    assert (point.seconds_quartile_1, point.seconds_quartile_3) == (0.2, 0.8)
    low, high = point.seconds_mean_low_bootstrap95, point.seconds_mean_high_bootstrap95
    assert min(seconds) < low < np.mean(seconds) < high < max(seconds)
    assert (point.batch_size, point.dtype, point.devices, point.timed) == (
        1,
        "float32",
        "cpu",
        True,
    )


def test_examples_that_ended_in_an_error_are_counted_but_not_timed(world) -> None:
    world.trace("nq", "m", [1.0, 3.0], failed=2)
    (point,) = world.points("runtime", ["nq"], ["m"])
    assert (point.n, point.failed, point.seconds_mean) == (2, 2, 2.0)


def test_an_ensemble_is_set_in_relation_to_its_models_alone(world) -> None:
    world.trace("nq", "m", [1.0])
    world.trace("nq", "l", [3.0])
    world.trace("nq", "both", [6.0], shards=[{"devices": ["cpu", "cpu"]}])
    points = world.points("runtime", ["nq"], ["both", "m", "l"])
    assert [p.mean_relative_to_members for p in points] == [1.5, None, None]
    alone = world.points("runtime", ["nq"], ["both", "m"])
    assert [p.mean_relative_to_members for p in alone] == [None, None]


def test_a_model_that_is_cut_elsewhere_is_not_what_an_ensemble_is_related_to(world) -> None:
    world.runs["short"] = {"method": "single", "models": ["m"], "max_rounds": 1}
    for run, seconds in (("short", 0.1), ("m", 1.0), ("l", 3.0)):
        world.trace("nq", run, [seconds])
    world.trace("nq", "both", [6.0], shards=[{"devices": ["cpu", "cpu"]}])
    points = world.points("runtime", ["nq"], ["short", "both", "m", "l"])
    assert [p.mean_relative_to_members for p in points] == [None, 1.5, None, None]


def test_two_gpus_of_one_machine_may_share_a_figure(world) -> None:
    world.trace("nq", "m", shards=[{"devices": ["cuda:0"]}])
    world.trace("nq", "l", shards=[{"devices": ["balanced"]}])
    world.trace("nq", "both", shards=[{"devices": ["cuda:0", "cuda:0+cuda:1"]}])
    points = world.points("runtime", ["nq"], ["m", "l", "both"])
    assert [p.devices for p in points] == ["cuda:0", "balanced", "cuda:0 cuda:0+cuda:1"]


@pytest.mark.parametrize(
    ("shards", "sentence"),
    [
        (
            [{"batch_size": 16}],
            r"m.parquet' \(batch size 1\) and .*both.parquet' \(batch size 16\)",
        ),
        ([{"dtype": "bfloat16"}], r"dtype float32.*dtype bfloat16"),
        ([{"devices": ["cuda:0"]}], r"device cpu.*device cuda"),
        ([{"engine": "reference"}], r"engine tree.*engine reference"),
        ([{"torch": "2.12.0"}], r"torch 2.13.0.*torch 2.12.0"),
        ([{}, {"batch_size": 16}], r"both.parquet' \(batch size 16\)"),
    ],
)
def test_times_of_other_conditions_are_refused(world, shards, sentence) -> None:
    world.trace("nq", "m")
    world.trace("nq", "both", shards=shards)
    with pytest.raises(UserError, match=sentence):
        world.points("runtime", ["nq"], ["m", "both"])


def test_times_of_other_kinds_of_gpu_are_refused(world) -> None:
    cards = ("NVIDIA A100", "NVIDIA H200")
    world.trace("nq", "both", shards=[{"devices": ["cuda:0"], "gpus": [card]} for card in cards])
    sentence = r"both.parquet' \(GPU NVIDIA A100\) and .*\(GPU NVIDIA H200\)"
    with pytest.raises(UserError, match=sentence):
        world.points("runtime", ["nq"], ["both"])


def test_a_run_that_decoded_nothing_has_no_runtime(world) -> None:
    world.trace("nq", "m", seconds=[], failed=1)
    with pytest.raises(UserError, match="no example that was decoded to its end"):
        world.points("runtime", ["nq"], ["m"])


def test_a_trace_that_does_not_say_how_it_was_decoded_is_refused(world) -> None:
    from adafuse.storage.parquet import read_arrow, write_arrow

    path = world.trace("nq", "m")
    write_arrow(path, read_arrow(path), {"chosen": "by scores"})
    with pytest.raises(UserError, match=r"does not say how it was decoded \(no 'shards'\)"):
        world.points("runtime", ["nq"], ["m"])
