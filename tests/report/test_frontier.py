"""Scores against what decoding costs."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.report.experiments import _undominated, best_member
from adafuse.report.figures import draw_frontier

RUNS = {"m": "1100", "l": "1000", "both": "1110", "both_b3": "1110", "oracle": "1111"}
FORWARDS = {"m": (2,), "l": (2,), "both": (1, 2), "both_b3": (2, 2)}


@pytest.fixture
def points(world):
    for name, right in RUNS.items():
        world.score("squad", name, right)
    for name, forwards in FORWARDS.items():
        world.trace("squad", name, [2.0, 4.0], words=(), forwards=forwards)
    return {point.run: point for point in world.points("frontier", ["squad"], list(RUNS))}


def test_a_cost_is_the_passes_of_all_models_per_token_of_the_text(points) -> None:
    found = {name: point.forwards_per_token for name, point in points.items()}
    assert found == {"m": 2.0, "l": 2.0, "both": 3.0, "both_b3": 4.0, "oracle": None}
    assert {points[name].seconds_mean for name in FORWARDS} == {3.0}


def test_the_best_are_those_that_nobody_beats_at_their_cost(points) -> None:
    assert {name for name, point in points.items() if point.best} == {"m", "both"}


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=8))
def test_each_run_is_best_or_beaten_by_one_of_the_best(costs) -> None:
    panel = pl.DataFrame(costs, schema=["forwards_per_token", "value"], orient="row")
    best = _undominated(panel).to_list()
    chosen = [point for point, good in zip(costs, best, strict=True) if good]
    assert chosen
    for x, y in costs:
        beaten = any(a <= x and b >= y and (a, b) != (x, y) for a, b in chosen)
        assert beaten != ((x, y) in chosen)


def test_a_run_of_unknown_cost_is_a_line_across_the_panel(world, points) -> None:
    table = pl.DataFrame([vars(point) for point in points.values()])
    spec = draw_frontier("Quality and cost", table)
    (panel,) = spec["vconcat"][0]["vconcat"][0]["concat"]
    joined, dashed, bars, alone, ticks, dots, hollow = panel["layer"]
    assert alone["encoding"]["y2"] == {"field": "equal_forwards_value"}
    assert ticks["encoding"]["y"]["field"] == "equal_forwards_value"
    assert dashed["mark"]["strokeDash"]
    assert dashed["transform"] == [{"filter": "!isValid(datum.forwards_per_token)"}]
    assert {"filter": "datum.best"} in joined["transform"]
    assert panel["title"]["text"][-1].startswith("strict scoring, n = ")
    names = dots["encoding"]["color"]["scale"]["domain"]
    assert names == ["m", "l", "both", "both_b3", "oracle (oracle)"]
    assert bars["encoding"]["y2"] == {"field": "high"}
    assert dots["transform"] != hollow["transform"]


def test_an_ensemble_is_beside_the_best_that_a_model_of_it_does_at_its_cost(points) -> None:
    found = {name: point.equal_forwards for name, point in points.items()}
    assert found == {"m": None, "l": None, "both": "m", "both_b3": "m", "oracle": None}
    both = points["both"]
    assert (both.value, both.equal_forwards_value) == (75, 50)
    assert both.equal_forwards_difference == 25
    assert both.equal_forwards_difference_low < 25 < both.equal_forwards_difference_high
    assert {point.equal_evaluated for point in points.values()} == {None}  # no count in the traces


def test_what_costs_more_than_the_ensemble_is_not_beside_it(world) -> None:
    for name, forwards in {"m": (3,), "l": (4,), "both": (1, 2)}.items():
        world.score("squad", name, RUNS[name])
        costs = {"forwards": forwards, "evaluated": forwards}
        world.trace("squad", name, [2.0, 4.0], words=(), **costs)
    found = {p.run: p for p in world.points("frontier", ["squad"], ["l", "both", "m"])}
    assert found["both"].equal_forwards == found["both"].equal_evaluated == "m"
    world.trace("squad", "m", [2.0, 4.0], words=(), forwards=(3,), evaluated=(30,))
    found = {p.run: p for p in world.points("frontier", ["squad"], ["l", "both", "m"])}
    assert (found["both"].equal_forwards, found["both"].equal_evaluated) == ("m", None)
    assert (found["both"].evaluated, found["m"].evaluated) == (3.0, 30.0)


COSTS = st.one_of(st.none(), st.integers(1, 4))
LINES = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "ab"]), COSTS, st.integers(0, 4)))


@given(LINES.filter(bool))
def test_no_affordable_run_of_a_model_is_better_than_the_one_beside(lines) -> None:
    rows = [
        {"run": f"{n}", "forwards": cost, "value": value, "metric": "exact_match"}
        for n, (_, cost, value) in enumerate(lines)
    ]
    models = {f"{n}": tuple(own) for n, (own, _, _) in enumerate(lines)}
    for row, (own, cost, _) in zip(rows, lines, strict=True):
        beside = best_member(row, rows, "forwards", models)
        rivals = [
            rival
            for rival in rows
            if len(own) > 1 and cost is not None and models[rival["run"]] in (("a",), ("b",))
            if rival["forwards"] is not None and rival["forwards"] <= cost
        ]
        assert (beside is None) == (not rivals)
        if beside is not None:
            assert beside in rivals
            assert beside["value"] == max(rival["value"] for rival in rivals)


KILLED = {"resumed": ({"resumed": 3}, {}), "reused": ({}, {"reused": 3})}


@pytest.mark.parametrize("shards", KILLED.values(), ids=KILLED)
def test_a_cost_that_a_kill_or_reuse_changed_is_marked_and_named(world, points, shards) -> None:
    world.trace("squad", "both", [2.0, 4.0], words=(), forwards=(1, 1), shards=shards)
    again = {point.run: point for point in world.points("frontier", ["squad"], list(RUNS))}
    assert {name: point.earlier for name, point in again.items()} == {
        "m": 0, "l": 0, "both": 3, "both_b3": 0, "oracle": None
    }  # fmt: skip
    table = pl.DataFrame([vars(point) for point in again.values()], infer_schema_length=None)
    told = str(draw_frontier("Quality and cost", table))
    assert "in an earlier attempt or for another run" in told.replace("', '", " ")
    assert "both on squad (n = 3)" in told.replace("', '", " ")
    assert {"filter": "datum.earlier > 0"} in hollow_of(table)["transform"]


def test_no_cost_of_undisturbed_jobs_is_marked_and_all_say_what_they_depend_on(points) -> None:
    table = pl.DataFrame([vars(point) for point in points.values()], infer_schema_length=None)
    told = str(draw_frontier("Quality and cost", table)).replace("', '", " ")
    assert "earlier attempt" not in told
    assert "depends on the batch size" in told


def hollow_of(table: pl.DataFrame) -> dict:
    (panel,) = draw_frontier("", table)["vconcat"][0]["vconcat"][0]["concat"]
    return panel["layer"][-1]


def test_the_answers_that_a_run_starts_from_are_part_of_its_cost(world) -> None:
    world.runs["ranked"] = {"method": "rerank", "models": ["m", "l"]}
    spent = {"m": ((9,), (10,)), "l": ((7,), (8,)), "ranked": ((1, 1), (5, 5))}
    for name, (forwards, evaluated) in spent.items():
        world.score("squad", name, "1100")
        world.trace("squad", name, [2.0], words=(), forwards=forwards, evaluated=evaluated)
    found = {p.run: p for p in world.points("frontier", ["squad"], ["ranked", "m"])}
    ranked = found["ranked"]
    assert (ranked.forwards, ranked.evaluated, ranked.forwards_per_token) == (18, 28, 18)
    assert ranked.equal_forwards == "m"
    assert (found["m"].forwards, found["m"].evaluated) == (9, 10)
