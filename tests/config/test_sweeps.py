"""A run written once for several values of an option."""

from typing import Any

import pytest

from adafuse.config.reading import parse_config, with_sweeps
from adafuse.errors import UserError

RUN = {"method": "adafuse", "models": ["left", "right"]}


def expanded(**run: Any) -> dict[str, Any]:
    runs: dict[str, Any] = with_sweeps({"runs": {"x": {**RUN, **run}}})["runs"]
    return {name: each.get("options") for name, each in runs.items()}


def test_a_sweep_is_a_run_per_value() -> None:
    assert expanded(sweep={"tau": [0.0, 0.5]}, options={"branching": 2}) == {
        "x_0.0": {"branching": 2, "tau": 0.0},
        "x_0.5": {"branching": 2, "tau": 0.5},
    }


def test_a_sweep_of_two_options_is_every_combination() -> None:
    found = expanded(sweep={"tau": [0.1, 0.2], "branching": [1, 3]})
    assert list(found) == ["x_0.1_1", "x_0.1_3", "x_0.2_1", "x_0.2_3"]
    assert found["x_0.2_1"] == {"tau": 0.2, "branching": 1}


def test_options_that_are_null_beside_a_sweep_are_none() -> None:
    assert expanded(sweep={"tau": [0.5]}, options=None) == {"x_0.5": {"tau": 0.5}}


@pytest.mark.parametrize("options", ["tau", [1], 0, False])
def test_options_that_are_no_mapping_are_refused(values: dict[str, Any], options: Any) -> None:
    values["runs"]["x"] = {**RUN, "sweep": {"tau": [0.5]}, "options": options}
    with pytest.raises(UserError, match=r"runs\.x\.options must be a valid dictionary, not"):
        parse_config(values)


def test_a_run_without_a_sweep_stays_as_it_is() -> None:
    values = {"runs": {"x": RUN}, "results": "r"}
    assert with_sweeps(values) == values
    assert with_sweeps({"results": "r"}) == {"results": "r"}


def test_a_list_of_runs_may_say_the_name_of_a_sweep_for_all_of_it(values: dict[str, Any]) -> None:
    values["runs"]["x"] = {**RUN, "sweep": {"tau": [0.1, 0.2]}}
    values["main"] = {"runs": ["left", "x"]}
    values["experiments"] = {
        "f": {"title": "t", "kind": "scores", "benchmarks": ["qa"], "runs": ["x", "both"]}
    }
    config = parse_config(values)
    assert config.main_runs == ["left", "x_0.1", "x_0.2"]
    assert config.experiments["f"].runs == ("x_0.1", "x_0.2", "both")


def test_a_choice_between_runs_may_say_the_name_of_a_sweep_for_all_of_it() -> None:
    choice = {"method": "certified", "models": RUN["models"], "options": {"runs": ["y", "x"]}}
    runs = {"x": {**RUN, "sweep": {"tau": [0.1, 0.2]}}, "y": RUN, "sure": choice}
    found = with_sweeps({"runs": runs})["runs"]["sure"]
    assert found["options"]["runs"] == ["y", "x_0.1", "x_0.2"]


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ({"sweep": 0.5}, r"runs\.x\.sweep must be a valid dictionary, not 0\.5"),
        ({"sweep": {"tau": 0.5}}, r"runs\.x\.sweep\.tau must be a valid list, not 0\.5; put it in"),
        ({"sweep": {}}, r"runs\.x\.sweep .*must have at least 1 item"),
        ({"sweep": {"tau": []}}, r"runs\.x\.sweep\.tau .*must have at least 1 item"),
        ({"sweep": {"tau": [1]}, "options": {"tau": 1}}, "tau is in `sweep` and in `options`"),
        ({"sweep": {"tau": [0.5, 1, 1.0]}}, r"`sweep` has tau 1\.0 twice; remove one"),
    ],
)
def test_a_sweep_of_another_form_is_refused(
    values: dict[str, Any], run: dict[str, Any], sentence: str
) -> None:
    values["runs"]["x"] = {**RUN, **run}
    with pytest.raises(UserError, match=sentence):
        parse_config(values)


def test_a_value_that_the_method_does_not_take_is_refused(values: dict[str, Any]) -> None:
    values["runs"]["x"] = {**RUN, "sweep": {"tau": [0.5, -1.0]}}
    with pytest.raises(UserError, match=r"runs\.x_-1\.0: method adafuse: tau"):
        parse_config(values)


def test_two_runs_of_one_name_are_refused(values: dict[str, Any]) -> None:
    values["runs"] |= {"x": {**RUN, "sweep": {"tau": [0.5]}}, "x_0.5": RUN}
    with pytest.raises(UserError, match=r"two runs 'x_0\.5' after sweeps; rename one"):
        parse_config(values)
