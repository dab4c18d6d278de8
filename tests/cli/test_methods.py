"""`adafuse methods` for people and machines."""

import json

import pytest
from typer.testing import CliRunner

from adafuse.cli.main import app
from adafuse.methods import METHODS
from adafuse.methods.selections import SELECTIONS


def doc(*options):
    done = CliRunner().invoke(app, ["methods", *options])
    assert done.exit_code == 0
    return done.stdout


def test_every_method_and_option_is_there_as_json():
    rows = {row["name"]: row for row in json.loads(doc("--json"))}
    assert set(rows) == {*METHODS, *SELECTIONS}
    for name, method in METHODS.items():
        assert set(rows[name]["options"]) == set(method.Options.model_fields)
    assert rows["adafuse"]["options"]["tau"]["default"] == 0.7
    assert rows["single"]["models"] == {"fewest": 1, "most": 1}
    assert rows["best_of"]["workflow_only"]


def test_one_method_is_explained_with_what_its_options_may_be():
    text = doc("adafuse")
    assert text.startswith("adafuse: ")
    assert 'fusion (default "mean_nll"; one of mean_nll, mixture, most_confident, learned)' in text
    assert "unite: " not in text


def test_a_summary_is_whole():
    line = next(each for each in doc().split("\n") if each.startswith("unite: "))
    assert line.endswith("then to the primary.")


@pytest.mark.parametrize("name", [*METHODS, *SELECTIONS])
def test_every_option_is_explained_where_its_method_is(name):
    method = METHODS.get(name) or SELECTIONS[name]
    text = " ".join(doc(name).split())
    schema = method.Options.model_json_schema().get("properties", {})
    for option, field in method.Options.model_fields.items():
        assert f"{option} ({'required' if field.is_required() else 'default'}" in text
        assert schema[option]["description"] in text
