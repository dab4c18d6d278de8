"""What the doctor says of the installation."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from adafuse.models import installation
from adafuse.models.installation import look_around


@pytest.fixture
def pip(monkeypatch):
    """Makes `pip check` end with some lines."""

    def says(*lines, stderr=""):
        done = subprocess.CompletedProcess([], 1, "\n".join(lines), stderr)
        monkeypatch.setattr(installation, "_pip_check", lambda: done)
        return [each for each in look_around()[1] if "snakemake" not in each.sentence]

    return says


def test_this_installation_has_no_problem():
    found, wrong = look_around()
    assert not [each for each in wrong if each.problem]
    assert found.packages["torch"]
    assert found.devices[0].name == "cpu"
    assert found.devices[0].free > 0


@pytest.mark.parametrize(
    "line",
    [
        "adafuse 0.1.0 has requirement numpy<1, but you have numpy 2.4.6.",
        "adafuse 0.1.0 requires not-a-package, which is not installed.",
    ],
)
def test_a_version_that_does_not_fit_is_a_problem_with_its_fix(pip, line):
    (wrong,) = pip(line)
    assert wrong.problem
    assert wrong.sentence == f"{line[:-1]}; pip install a version that fits"


def test_conflicts_of_other_packages_and_a_missing_pip_are_warnings(pip):
    (other,) = pip("spam 1.0 requires eggs, which is not installed.")
    (missing,) = pip(stderr="python: No module named pip")
    assert not other.problem
    assert not missing.problem
    assert "pip is not installed" in missing.sentence


def test_every_extra_for_users_is_looked_at():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = {*project["optional-dependencies"]} - {"dev", "docs"}
    assert {*installation.PACKAGES.values()} - {None} == extras


def test_a_driver_without_a_gpu_for_torch_is_warned_of(monkeypatch, tmp_path):
    monkeypatch.setattr(installation, "_DRIVER", tmp_path)
    monkeypatch.setattr(installation, "_devices", lambda: [])
    _, wrong = look_around()
    assert [each for each in wrong if "there is an NVIDIA driver, but torch" in each.sentence]
