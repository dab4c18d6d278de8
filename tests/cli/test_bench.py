"""`adafuse bench` as a user runs it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adafuse.cli.main import app
from adafuse.methods import METHODS
from tests.conftest import toy_path

SMALL = ["--chains", "1", "--repeats", "1", "--max-new-tokens", "2", "--json"]
APART = {"adafuse", "single", "llm_blender"}


@pytest.mark.parametrize("count", [1, 2])
def test_all_other_methods_that_take_so_many_models_are_timed(tmp_path: Path, count: int) -> None:
    models = [toy_path(name) for name in ("mistral", "llama")[:count]]
    named = [part for model in models for part in ("--model", model)]
    given = [*named, "--out", str(tmp_path), "--only", ", batch 8", *SMALL]
    done = CliRunner().invoke(app, ["bench", *given], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    cases = {timing["case"] for timing in json.loads(done.stdout)["timings"]}
    timed = {name for name in METHODS if f"{name}, batch 8" in cases}
    alone = {name for name in METHODS if METHODS[name].models == (1, 1)} - APART
    assert alone and timed == METHODS.keys() - APART - (alone if count > 1 else set())
