"""Where a job says that it runs."""

import platform

import pytest

from adafuse.workflow.provenance import Machine, this_machine

VARIABLES = ("SLURMD_NODENAME", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES")


def test_a_slurm_job_names_its_node_its_number_and_its_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in zip(VARIABLES, ("node7", "12", "0,3"), strict=True):
        monkeypatch.setenv(name, value)
    assert this_machine() == Machine(host="node7", cuda_visible_devices="0,3", slurm_job="12")
    assert str(this_machine()) == "node7, Slurm job 12, CUDA_VISIBLE_DEVICES=0,3"


def test_elsewhere_the_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert this_machine() == Machine(platform.node(), None, None)
    assert str(this_machine()) == platform.node()
