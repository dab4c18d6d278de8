"""Where a job says that it runs."""

import platform

import pytest

from adafuse.storage.provenance import this_machine

VARIABLES = ("SLURMD_NODENAME", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES")


def test_a_slurm_job_names_its_node_its_number_and_its_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in zip(VARIABLES, ("node7", "12", "0,3"), strict=True):
        monkeypatch.setenv(name, value)
    place = {"host": "node7", "cuda_visible_devices": "0,3", "slurm_job": "12"}
    assert this_machine() == {**place, "gpus": []}


def test_elsewhere_the_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    here = {"host": platform.node(), "cuda_visible_devices": None, "slurm_job": None, "gpus": []}
    assert this_machine() == here
