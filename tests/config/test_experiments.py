"""What the main table and the experiments may show, and what a choice between runs needs."""

import re
from pathlib import Path
from typing import Any

import pytest

from adafuse.config.reading import parse_config
from adafuse.errors import UserError

ROOT = Path(__file__).parents[2]
FIGURE = {"title": "t", "kind": "scores", "benchmarks": ["qa"], "runs": ["both"]}
SINGLE = {"method": "single", "models": ["right"]}


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"main": {"runs": ["bth"]}}, "main: unknown run 'bth'; known are: left, both, far"),
        ({"main": {"benchmarks": ["x"]}}, "main: unknown benchmark 'x'; known are: qa"),
        ({"main": {"runs": ["left", "left"]}}, "main.runs: 'left' is listed twice; remove one"),
        ({"main": {"rows": []}}, "main: unknown key 'rows'; known are: runs, benchmarks"),
        ({"targets": ["figures"]}, "targets"),
    ],
)
def test_the_main_table_shows_what_there_is(
    values: dict[str, Any], section: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        parse_config({**values, **section})


def test_of_hundreds_of_runs_a_sentence_names_some_and_the_nearest(values: dict[str, Any]) -> None:
    values["runs"] |= {f"run_{number}": SINGLE for number in range(200)}
    values["main"] = {"runs": ["rnu_150"]}
    with pytest.raises(
        UserError, match=r"run_\d+ and \d+ more; did you mean 'run_150'\?"
    ) as raised:
        parse_config(values)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"runs": ["no"]}, r"experiments\.f: unknown run 'no'"),
        ({"benchmarks": ["no"]}, r"experiments\.f: unknown benchmark 'no'"),
        ({"kind": "bars"}, r"experiments\.f\.kind"),
        ({"kind": "sweep"}, r"options is \[\]; name the swept options"),
        ({"options": ["tau"]}, r"options is \['tau'\]; name .* none for another kind"),
        ({"kind": "sweep", "options": ["width"]}, r"'both' .* has 0 of the options \['width'\]"),
        ({"kind": "sweep", "options": ["fusion"]}, r"f: run 'both': fusion is 'mean_nll'; only"),
        ({"kind": "paired"}, r"tests pairs of runs, but \['both'\] is only one; name at least two"),
        (
            {"kind": "words_per_round", "published": {"both": "UniTE"}},
            "published is for kind scores, not for words_per_round; remove it",
        ),
        ({"published": {"both": "UniTE"}}, "published needs `published_numbers`"),
        ({"colour": "red"}, "experiments.f: unknown key 'colour'; known are: title, kind"),
    ],
)
def test_an_experiment_fits_its_runs(
    values: dict[str, Any], change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        parse_config({**values, "experiments": {"f": {**FIGURE, **change}}})


def test_two_runs_at_one_place_of_a_sweep_are_refused(values: dict[str, Any]) -> None:
    values["runs"]["twin"] = {"method": "adafuse", "models": ["left", "right"]}
    sweep = {**FIGURE, "kind": "sweep", "options": ["tau"], "runs": ["both", "twin"]}
    with pytest.raises(
        UserError, match=r"f: runs 'both' and 'twin' differ only in their names .*tau 0\.7"
    ):
        parse_config({**values, "experiments": {"f": sweep}})
    values["runs"]["twin"]["options"] = {"tau": 0.6}
    parse_config({**values, "experiments": {"f": sweep}})


def test_times_of_other_batch_sizes_share_no_figure(values: dict[str, Any]) -> None:
    qa = values["benchmarks"]["qa"]
    values["benchmarks"]["one"] = {**qa, "batch_size": 1}
    both = {**FIGURE, "kind": "runtime", "benchmarks": ["qa", "one"]}
    with pytest.raises(UserError, match=r"f: the batch_size .* \('qa' 16, 'one' 1\), .* same"):
        parse_config({**values, "experiments": {"f": both}})
    values["decode"]["batch_size"] = 1
    parse_config({**values, "experiments": {"f": both}})


def test_what_is_to_be_made_is_there(values: dict[str, Any]) -> None:
    with pytest.raises(
        UserError, match=r"targets is \['experiments'\], but .* no experiments; add"
    ):
        parse_config({**values, "targets": ["experiments"]})
    parse_config({**values, "targets": ["experiments"], "experiments": {"f": FIGURE}})


@pytest.mark.parametrize("name", ["figure-6", "figure.6", "6"])
def test_an_experiment_that_cannot_be_a_rule_is_refused(values: dict[str, Any], name: str) -> None:
    with pytest.raises(UserError, match=f"'{re.escape(name)}' cannot name a rule .*; use letters"):
        parse_config({**values, "experiments": {name: FIGURE}})


@pytest.mark.parametrize(
    ("published", "sentence"),
    [
        ({"both": "Unite"}, "unknown row 'Unite'; known are: Mistral-7B-v0.3"),
        ({"left": "UniTE"}, "unknown run 'left'; known are: both"),
    ],
)
def test_published_rows_exist_in_the_papers_numbers(
    values: dict[str, Any], published: dict[str, str], sentence: str
) -> None:
    values["published_numbers"] = "config/published.yaml"
    with pytest.raises(UserError, match=sentence):
        parse_config({**values, "experiments": {"f": {**FIGURE, "published": published}}})


def test_a_choice_needs_each_model_alone(values: dict[str, Any]) -> None:
    values["runs"]["best"] = {"method": "best_of", "models": ["left", "right"]}
    with pytest.raises(UserError, match=r"runs\.best: .* add a run of method single .* right"):
        parse_config(values)
    values["runs"]["right"] = SINGLE
    parse_config(values)


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ({"method": "best_of", "models": ["left"]}, "needs at least 2 different models"),
        ({"method": "best_of", "models": ["left", "left"]}, "needs at least 2 different models"),
        ({"method": "best_pair", "options": {"runs": ["no"]}}, "unknown run 'no'"),
        ({"method": "best_pair", "options": {"runs": ["best"]}}, "decodes nothing; name a run"),
        ({"method": "best_pair", "options": {"runs": ["left"]}}, "no run among .*left and right"),
        (
            {"method": "best_of", "weights": [1, 2]},
            r"weights \[1.0, 2.0\] changes nothing in method best_of, which decodes nothing",
        ),
        ({"method": "best_of", "max_rounds": 4}, "max_rounds 4 changes nothing in .*; remove it"),
        ({"method": "best_off"}, "unknown method 'best_off'; known are: single, .*best_pair"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(
    values: dict[str, Any], run: dict[str, Any], sentence: str
) -> None:
    values["runs"] |= {"right": SINGLE, "best": {"models": ["left", "right"], **run}}
    with pytest.raises(UserError, match=f"runs.best: .*{sentence}"):
        parse_config(values)


@pytest.fixture
def certified(values: dict[str, Any]) -> dict[str, Any]:
    """A configuration with a certified run, and a run whose gate learns from development rows."""
    qa, learned = values["benchmarks"]["qa"], {"fusion": "learned", "gate": "development"}
    values["benchmarks"] = {"qa": {**qa, "development": "dev"}, "dev": {**qa}, "other": {**qa}}
    pair = {"models": ["left", "right"]}
    values["runs"] |= {
        "right": SINGLE,
        "learned": {"method": "adafuse", **pair, "options": learned},
        "sure": {"method": "certified", **pair, "options": {"runs": ["both"]}},
    }
    return {**values, "main": {"benchmarks": ["qa"], "runs": ["left", "both", "sure"]}}


def test_a_certified_run_needs_rows_of_the_same_task(certified: dict[str, Any]) -> None:
    parse_config(certified)
    certified["benchmarks"]["dev"] = {**certified["benchmarks"]["other"], "max_new_tokens": 9}
    with pytest.raises(UserError, match=r"runs.sure: max_new_tokens of 'dev' is not that of 'qa'"):
        parse_config(certified)
    certified["benchmarks"]["qa"]["calibration"] = "other"
    parse_config(certified)
    del certified["benchmarks"]["qa"]["development"]
    parse_config(certified)
    del certified["benchmarks"]["qa"]["calibration"]
    with pytest.raises(UserError, match=r"runs.sure: benchmark 'qa' has no development rows to"):
        parse_config(certified)


def test_a_certified_run_chooses_on_rows_that_no_gate_has_seen(certified: dict[str, Any]) -> None:
    certified["runs"]["sure"]["options"]["runs"] = ["learned"]
    sentence = "runs.sure: run 'learned' has a gate .*; give 'qa' other rows as `calibration`, and"
    for given in ({}, {"calibration": "other"}):
        certified["benchmarks"]["qa"].update(given)
        with pytest.raises(UserError, match=sentence):
            parse_config(certified)
    certified["benchmarks"]["other"]["development"] = "dev"
    parse_config(certified)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"options": {"runs": ["far"]}}, "run 'far' has model 'hub', which is not among"),
        ({"options": {"runs": ["nope"]}}, "unknown run 'nope'"),
        ({"options": {"runs": ["sure"]}}, "run 'sure' decodes nothing; name a run that decodes"),
        ({"options": {"runs": []}}, "runs"),
        ({"options": {"runs": ["both"], "order": "best"}}, "order"),
        ({"options": {"runs": ["both"], "alpha": 1}}, "alpha"),
        ({"models": ["left"]}, "needs at least 2 different models"),
    ],
)
def test_a_certificate_that_cannot_be_had_is_refused(
    certified: dict[str, Any], change: dict[str, Any], sentence: str
) -> None:
    certified["runs"]["sure"].update(change)
    with pytest.raises(UserError, match=f"runs.sure: .*{sentence}"):
        parse_config(certified)


def test_a_development_pair_needs_development_rows(values: dict[str, Any]) -> None:
    pair = {"models": ["left", "right"], "options": {"runs": ["both"]}}
    values["runs"] |= {"right": SINGLE, "chosen": {"method": "development_pair", **pair}}
    with pytest.raises(UserError, match="'qa' has no development rows to choose by"):
        parse_config(values)
    qa = values["benchmarks"]["qa"]
    for name, sentence in (("qa", "names itself"), ("dev", "unknown benchmark 'dev'")):
        values["benchmarks"]["qa"] = {**qa, "development": name}
        with pytest.raises(UserError, match=sentence):
            parse_config(values)
    values["benchmarks"] = {"qa": {**qa, "development": "dev"}, "dev": qa}
    with pytest.raises(UserError, match="'dev' has no development rows"):
        parse_config(values)  # the main table shows all benchmarks
    parse_config({**values, "main": {"benchmarks": ["qa"]}})
