"""What is shown of gates: the importance of features, and calibration curves."""

import pytest

from adafuse.development.gate_file import Bin, FittedGate, write_gate
from adafuse.errors import UserError
from adafuse.report.figures import measured
from tests.decoding.test_gate import FITTED

LEARNED = {"method": "adafuse", "models": ["m", "l"]}
RULE, GATE = (
    tuple(Bin(chance=c, right=r, rounds=5) for c, r in points)
    for points in ([(0.5, 0.4)], [(0.6, 0.6), (0.9, 1.0)])
)


@pytest.fixture
def stored(world):
    """Runs with gates fitted on `other_rows`; the second one is the paper's rule."""
    told = {
        "unit": "points",
        "penalty": 0.1,
        "gain": {"0.1": 1.5},
        "importance": {"bias": 0.5, "span.words": 0.0},
    }
    calibrations = {"gated": {"mean_nll": RULE, "learned": GATE}, "plain": {"mean_nll": RULE}}
    for run, bins in calibrations.items():
        world.runs[run] = LEARNED | {"options": {"fusion": "learned", "gate": "development"}}
        about = {"calibration": bins} | (told if run == "gated" else {"penalty": None})
        gate = FittedGate(
            models=(), bias=(), weights={}, span={}, fitted=FITTED.model_copy(update=about)
        )
        write_gate(world.root / "gates/other_rows" / f"{run}.json", gate)
    return world


def test_the_table_has_what_is_lost_without_a_feature_and_how_often_choices_are_best(stored):
    table, chart = measured(stored.experiment("gates", ["squad", "nq"], ["gated", "plain"]))
    squad = table.filter(benchmark="squad")
    lost = squad.filter(part="importance").select("run", "name", "value").rows()
    assert lost == [("gated", "all", 1.5), ("gated", "bias", 0.5), ("gated", "span.words", 0.0)]
    curves = squad.filter(part="calibration").select("run", "name", "chance", "value", "rounds")
    assert curves.rows() == [
        ("gated", "mean_nll", 50.0, 40.0, 5),
        ("gated", "learned", 60.0, 60.0, 5),
        ("gated", "learned", 90.0, 100.0, 5),
        ("plain", "mean_nll", 50.0, 40.0, 5),
    ]
    assert {*table["fitted_on"]} == {"other_rows"}
    assert {*table["unit"].drop_nulls()} == {"points"} and "points" in str(chart)
    curves, features = chart["vconcat"][0]["vconcat"][0]["vconcat"]
    assert len(curves["concat"]) == len(features["concat"]) == 2


def test_a_gate_that_is_the_papers_rule_has_its_curve_and_no_features(stored):
    table, chart = measured(stored.experiment("gates", ["squad"], ["plain"]))
    assert {*table["part"]} == {"calibration"}
    assert len(chart["vconcat"][0]["vconcat"][0]["vconcat"]) == 1


def test_where_no_choice_mattered_there_is_nothing_to_show(stored):
    none = FITTED.model_copy(update={"penalty": None})
    empty = FittedGate(models=(), bias=(), weights={}, span={}, fitted=none)
    write_gate(stored.root / "gates/other_rows/gated.json", empty)
    with pytest.raises(UserError, match="no choice mattered on any development row"):
        measured(stored.experiment("gates", ["squad"], ["gated"]))


def test_a_run_without_a_gate_of_the_workflow_is_refused(world):
    with pytest.raises(UserError, match="run 'both' has no gate that the workflow fits"):
        world.experiment("gates", ["squad"], ["both"])
