"""A checkout in which a part of the toy workflow ran."""

import pytest

from .scratch import Scratch

PARTS = (
    "results/traces/toy_qa/mistral.parquet",
    "results/traces/toy_qa/adafuse.parquet",
    "results/scores/strict/toy_qa/mistral.json",
    "results/scores/strict/toy_qa/adafuse.json",
)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Scratch:
    """One with traces and scores of the toy questions; tests must not change it."""
    scratch = Scratch.made(tmp_path_factory.mktemp("results") / "checkout")
    done = scratch.run("sh", f"snakemake {' '.join(PARTS)} --cores 2 --quiet rules")
    assert done.returncode == 0, done.stdout + done.stderr
    return scratch
