"""What the doctor says of the installation."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from adafuse.models import installation
from adafuse.models.installation import fits, look_around


def requiring(monkeypatch, *lines):
    monkeypatch.setattr(installation, "_requirements", lambda: list(lines))
    found, wrong = look_around()
    return {each.name: each for each in found.packages}, {each.sentence: each for each in wrong}


def test_this_installation_has_no_problem():
    found, wrong = look_around()
    assert not [each for each in wrong if each.problem]
    assert {"torch", "transformers", "snakemake"} <= {each.name for each in found.packages}
    assert found.devices[0].name == "cpu"
    assert found.devices[0].free > 0


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("numpy<1", "package numpy is "),
        ("not-a-package>=2", "package not-a-package is not installed; run pip install"),
    ],
)
def test_a_version_that_does_not_fit_is_a_problem_with_its_fix(monkeypatch, line, sentence):
    packages, wrong = requiring(monkeypatch, line)
    (told,) = [text for text in wrong if sentence in text]
    assert wrong[told].problem
    assert told.endswith(f"run pip install '{line}'")
    assert not next(iter(packages.values())).fits


def test_extras_may_be_missing_but_are_told(monkeypatch):
    line = 'not-a-package>=2; extra == "quantized"'
    packages, wrong = requiring(monkeypatch, line, 'scipy; extra == "dev"')
    assert packages["not-a-package"].extra == "quantized"
    assert "scipy" not in packages
    assert not [each for each in wrong.values() if each.problem]


def test_every_extra_for_users_is_looked_at():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {*installation.EXTRAS} == {*project["optional-dependencies"]} - {"dev"}


def test_a_build_of_a_version_is_that_version():
    assert fits(Requirement("torch==2.13.0"), "2.13.0+cpu")
    assert not fits(Requirement("torch==2.13.0"), "2.12.0")
    assert not fits(Requirement("torch"), None)


def test_a_driver_without_a_gpu_for_torch_is_warned_of(monkeypatch, tmp_path):
    monkeypatch.setattr(installation, "_DRIVER", tmp_path)
    monkeypatch.setattr(installation, "_devices", lambda: [])
    _, wrong = look_around()
    assert [each for each in wrong if "there is an NVIDIA driver, but torch" in each.sentence]
