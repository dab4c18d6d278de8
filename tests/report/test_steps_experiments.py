"""`adafuse step experiment` from files to files."""

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adafuse.cli.steps import app
from adafuse.errors import UserError
from adafuse.report.experiments import find_experiment

KINDS = {
    "scores": {},
    "sweep": {"options": ["branching"]},
    "runtime": {},
    "words_per_round": {},
    "paired": {},
    "frontier": {},
}


def run(config: Path, name: str = "figure"):
    return CliRunner().invoke(app, ["experiment", f"--config={config}", f"--experiment={name}"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_becomes_numbers_and_pictures(world, tmp_path: Path, kind: str) -> None:
    for name, right in (("both", "1110"), ("both_b3", "1101")):
        world.score("squad", name, right)
        world.trace("squad", name, [1.0, 2.0], words=(1, 3))
    experiment = world.experiment(kind, ["squad"], ["both", "both_b3"], **KINDS[kind])
    config = world.store_config(experiment)
    done = run(config)
    assert (done.exit_code, done.stdout) == (0, "")
    with (tmp_path / "experiments/figure.csv").open() as text:
        assert {row["run"] for row in csv.DictReader(text)} == {"both", "both_b3"}
    svg = (tmp_path / "experiments/figure.svg").read_bytes()
    assert svg.startswith(b"<svg") and b">A figure</text>" in svg
    assert (tmp_path / "experiments/figure.png").read_bytes().startswith(b"\x89PNG")
    run(config)
    assert (tmp_path / "experiments/figure.svg").read_bytes() == svg


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("scores", "scores/strict/squad/both.json"),
        ("paired", "scores/strict/squad/both.outcomes.parquet"),
        ("runtime", "traces/squad/both.parquet"),
        ("words_per_round", "traces/squad/both.parquet"),
        ("frontier", "traces/squad/both.parquet"),
        ("frontier", "scores/strict/squad/both.json"),
    ],
)
def test_a_missing_input_is_named_with_what_to_do(world, tmp_path, kind, missing) -> None:
    for name in ("both", "both_b3"):
        world.score("squad", name, "10")
        world.trace("squad", name)
    (tmp_path / missing).unlink()
    done = run(world.store_config(world.experiment(kind, ["squad"], ["both", "both_b3"])))
    assert isinstance(done.exception, UserError)
    assert f"{missing}', which is not there; run snakemake figure" in str(done.exception)
    assert not (tmp_path / "experiments/figure.csv").exists()


def test_an_experiment_that_does_not_exist_is_named(world) -> None:
    config = world.experiment("scores", ["squad"], ["m"]).config
    with pytest.raises(UserError, match="unknown experiment 'figure_9'; known are: figure"):
        find_experiment(config, "figure_9")


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        ("scores", {"runs": ["x"]}, r"experiments.figure: unknown run 'x'"),
        (
            "scores",
            {"published": {"m": "Mistral"}},
            r"unknown row 'Mistral'; known",
        ),
        ("runtime", {"runs": ["oracle"]}, r"run 'oracle' decodes nothing itself"),
    ],
)
def test_an_experiment_that_does_not_fit_the_configuration_is_refused(
    world, kind, changes, sentence
) -> None:
    with pytest.raises(UserError, match=sentence):
        world.experiment(kind, ["squad"], **({"runs": ["m"]} | changes))
