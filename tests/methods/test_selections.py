"""Choosing between runs by what the models alone score."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.errors import UserError
from adafuse.methods.selections import SELECTIONS, Evidence, is_oracle, selection

PAIRS = {"ab": ("a", "b"), "ac": ("a", "c"), "bc": ("b", "c")}


def scores(*values):
    """Evidence of models that differ in their score only."""
    return [Evidence(value, {}) for value in values]


@given(st.lists(st.lists(st.floats(0, 100), min_size=4, max_size=4), min_size=1, max_size=4))
def test_best_of_takes_no_example_that_another_model_has_better(values):
    rows = "pqrs"
    evidence = [Evidence(0, dict(zip(rows, each, strict=True))) for each in values]
    chosen = selection("best_of", {}).choose(["m"] * len(values), evidence, [])
    for row in rows:
        best = max(each.values[row] for each in evidence)
        assert evidence[chosen[row]].values[row] == best
        assert all(each.values[row] < best for each in evidence[: chosen[row]])


@pytest.mark.parametrize("name", ["best_pair", "development_pair"])
@pytest.mark.parametrize(
    ("values", "pair"),
    [((3, 2, 1), "ab"), ((3, 1, 2), "ac"), ((1, 2, 3), "bc"), ((5, 5, 5), "ab"), ((1, 5, 5), "bc")],
)
def test_the_pair_of_the_two_best_models_is_chosen_and_the_earlier_of_equals(name, values, pair):
    chosen = selection(name, {"runs": list(PAIRS)}).choose(
        "abc", scores(*values), [*PAIRS.values()]
    )
    assert list(PAIRS)[chosen] == pair


def test_every_pair_of_the_models_must_have_a_run():
    chosen = selection("best_pair", {"runs": ["ab", "ac"]})
    with pytest.raises(UserError, match=r"no run among .* has the models b and c; add one"):
        chosen.check("abc", {"ab": ("a", "b"), "ac": ("a", "c")})
    chosen.check("abc", {name: pair[::-1] for name, pair in PAIRS.items()})
    with pytest.raises(UserError, match=r"run 'abc' is not a pair of \['a', 'b', 'c'\]; remove it"):
        chosen.check([*"abc"], {**PAIRS, "abc": ("a", "b", "c")})
    with pytest.raises(UserError, match=r"runs 'ab' and 'ba' have the same models, and only one"):
        chosen.check("abc", {**PAIRS, "ba": ("b", "a")})


@pytest.mark.parametrize("name", ["best_pair", "development_pair", "certified"])
def test_a_run_that_is_listed_twice_is_refused(name):
    with pytest.raises(UserError, match=r"method \w+: runs: 'ab' is listed twice; remove one"):
        selection(name, {"runs": ["ab", "ab", "ac", "bc"]})


def test_only_a_choice_that_saw_the_answers_is_an_oracle():
    assert [name for name in SELECTIONS if is_oracle(name)] == ["best_of", "best_pair"]
    assert not is_oracle("adafuse")


def test_options_of_a_selection_are_checked_like_those_of_a_method():
    with pytest.raises(UserError, match="method best_of: unknown option 'runs'; known are: n"):
        selection("best_of", {"runs": ["ab"]})
    with pytest.raises(UserError, match="method best_pair has no 'runs'; add it"):
        selection("best_pair", {})
