"""What the main table and the experiments may show, and what a choice between runs needs."""

from typing import Any

import pytest

from adafuse.errors import UserError
from adafuse.pipeline.parse import parse_config

FIGURE = {"title": "t", "kind": "scores", "benchmarks": ["qa"], "runs": ["both"]}
SINGLE = {"method": "single", "models": ["right"]}


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"main": {"runs": ["bth"]}}, "main: unknown run 'bth'; known are: left, both, far"),
        ({"main": {"benchmarks": ["x"]}}, "main: unknown benchmark 'x'; known are: qa"),
        ({"main": {"runs": ["left", "left"]}}, "main: run 'left' is listed twice"),
        ({"main": {"rows": []}}, "unknown key 'rows' in main; known are: runs, benchmarks"),
        ({"targets": ["figures"]}, "targets"),
    ],
)
def test_the_main_table_shows_what_there_is(
    values: dict[str, Any], section: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        parse_config({**values, **section})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"runs": ["no"]}, r"experiments\.f: unknown run 'no'"),
        ({"benchmarks": ["no"]}, r"experiments\.f: unknown benchmark 'no'"),
        ({"kind": "bars"}, r"experiments\.f\.kind"),
        ({"kind": "sweep"}, r"options is \[\]; name the swept options"),
        ({"options": ["tau"]}, r"options is \['tau'\]; name .* none for another kind"),
        ({"kind": "sweep", "options": ["width"]}, r"'both' has none of the options \['width'\]"),
        ({"published": {"both": "UniTE"}}, "published needs `published_numbers`"),
        ({"colour": "red"}, "unknown key 'colour' in experiments.f; known are: title, kind"),
    ],
)
def test_an_experiment_fits_its_runs(
    values: dict[str, Any], change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        parse_config({**values, "experiments": {"f": {**FIGURE, **change}}})


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
        ({"method": "best_pair", "options": {"runs": ["best"]}}, "decodes nothing itself"),
        ({"method": "best_pair", "options": {"runs": ["left"]}}, "no run among .*left and right"),
        ({"method": "best_off"}, "unknown method 'best_off'; known are: single, .*best_pair"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(
    values: dict[str, Any], run: dict[str, Any], sentence: str
) -> None:
    values["runs"] |= {"right": SINGLE, "best": {"models": ["left", "right"], **run}}
    with pytest.raises(UserError, match=f"runs.best: .*{sentence}"):
        parse_config(values)


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
