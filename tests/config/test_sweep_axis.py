"""Positions of runs in a sweep."""

import pytest

from adafuse.config.runs import RunConfig
from adafuse.config.sweep_axis import SweepPosition, series_labels, sweep_positions
from adafuse.errors import UserError


def run(method: str = "adafuse", **options) -> RunConfig:
    return RunConfig(method=method, models=("m", "l"), options=options)


def test_a_place_is_a_value_and_a_series() -> None:
    runs = {"a": run(), "b": run(branching=3), "c": run("beam_scaling", width=2)}
    assert sweep_positions("f", ["branching", "width"], runs) == {
        "a": SweepPosition("branching", 1, "adafuse"),
        "b": SweepPosition("branching", 3, "adafuse"),
        "c": SweepPosition("width", 2, "beam_scaling"),
    }


def test_a_part_that_only_one_method_has_tells_nothing() -> None:
    one, other = {"method": "x", "depth": 3}, {"method": "y"}
    assert series_labels({"a": one, "b": other}) == {"a": "x", "b": "y"}


@pytest.mark.parametrize(
    ("runs", "options", "sentence"),
    [
        ({"a": run()}, ["tau", "branching"], "f: run 'a' of method adafuse has 2 of the options"),
        ({"a": run("rerank")}, ["tau"], "f: run 'a' of method rerank has 0 of the options"),
        ({"a": run()}, ["fusion"], "f: run 'a': fusion is 'mean_nll'; only numbers"),
        (
            {"a": run(), "b": run(tau=0.7)},
            ["tau"],
            r"runs 'a' and 'b' differ only in their names .*tau 0.7",
        ),
    ],
)
def test_runs_that_do_not_fit_the_sweep_are_named(runs, options, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        sweep_positions("f", options, runs)
