"""Which run of a model alone another run starts from or chooses by."""

from typing import Any

import pytest

from adafuse.config.reading import parse_config
from adafuse.errors import UserError
from adafuse.workflow.choose import ballot
from adafuse.workflow.jobs import answer_runs
from adafuse.workflow.plan import Plan

BOTH = {"models": ["left", "right"]}
USERS = {
    "rerank": {"method": "rerank", **BOTH},
    "best_of": {"method": "best_of", **BOTH},
    "best_pair": {"method": "best_pair", **BOTH, "options": {"runs": ["both"]}},
}


@pytest.fixture
def singles(values: dict[str, Any]) -> dict[str, Any]:
    """A short run before the whole one of each model."""
    whole = {name: {"method": "single", "models": [name]} for name in ("left", "right")}
    short = {f"{name}_short": {**run, "max_rounds": 3} for name, run in whole.items()}
    values["runs"] = {**short, **whole, "both": values["runs"]["both"]}
    return values


@pytest.mark.parametrize("user", USERS)
def test_the_run_alone_has_as_many_rounds(singles: dict[str, Any], user: str) -> None:
    singles["runs"][user] = USERS[user]
    config = parse_config(singles)
    assert config.single_model_runs(config.runs[user]) == ["left", "right"]


def test_what_is_decoded_and_chosen_starts_from_the_same_runs(singles: dict[str, Any]) -> None:
    short = {**USERS["rerank"], "max_rounds": 3}
    singles["runs"] |= {**USERS, "short": short}
    plan = Plan.of(singles)
    assert answer_runs(plan.config, "rerank") == ["left", "right"]
    assert answer_runs(plan.config, "short") == ["left_short", "right_short"]
    assert ballot(plan.config, "qa", "best_of").candidates == ("left", "right")
    for run in ("best_of", "best_pair"):
        assert ballot(plan.config, "qa", run).evidence == (("qa", "left"), ("qa", "right"))


def test_a_run_alone_of_other_rounds_is_none(singles: dict[str, Any]) -> None:
    singles["runs"]["user"] = {**USERS["rerank"], "max_rounds": 4}
    with pytest.raises(
        UserError, match=r"add a run .* single with the model left and max_rounds 4$"
    ):
        parse_config(singles)
    del singles["runs"]["right"]
    for user in USERS.values():
        singles["runs"]["user"] = user
        with pytest.raises(UserError, match=r"runs\.user: .* single with the model right$"):
            parse_config(singles)


@pytest.mark.parametrize("user", USERS)
def test_several_single_model_runs_are_named(singles: dict[str, Any], user: str) -> None:
    again = {**singles["runs"]["left"], "options": {"max_word_tokens": 4}}
    singles["runs"] |= {"again": again, user: USERS[user]}
    with pytest.raises(UserError, match="model left, but 'left' and 'again' are such runs; leave"):
        parse_config(singles)
