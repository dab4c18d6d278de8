"""The throwaway cluster itself: when it starts, and that nothing is left of it."""

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.support import slurm_cluster as module
from tests.support.slurm_cluster import (
    ETC,
    OURS,
    CannotStartError,
    check_startable,
    command,
    needed_cluster,
    step_daemons,
    wait_for,
)


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty /etc/slurm on a machine on which a cluster could start."""
    monkeypatch.setattr(module, "ETC", tmp_path)
    monkeypatch.setattr(module, "PROGRAMS", ())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    check_startable()
    return tmp_path


@pytest.mark.parametrize("name", ["slurm.conf", "gres.conf"])
def test_it_does_not_start_beside_a_configuration_of_somebody_else(etc: Path, name: str) -> None:
    (etc / name).write_text("ClusterName=theirs\n")
    with pytest.raises(CannotStartError, match=r"is there already"):
        check_startable()


def test_it_does_not_start_beside_another_one_of_its_kind(etc: Path) -> None:
    (etc / "slurm.conf").write_text(f"{OURS}{os.getpid()}\nClusterName=throwaway\n")
    with pytest.raises(CannotStartError, match=r"is there already"):
        check_startable()


def test_what_a_killed_one_has_left_does_not_keep_it_from_starting(etc: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    (etc / "slurm.conf").write_text(f"{OURS}{ended.pid}\nClusterName=throwaway\n")
    check_startable()


def test_it_says_what_is_missing(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CannotStartError, match="only root"):
        check_startable()
    monkeypatch.setattr(module, "PROGRAMS", ("no-such-program",))
    with pytest.raises(CannotStartError, match="no-such-program is missing: apt-get install"):
        check_startable()


@pytest.mark.parametrize(("ci", "end"), [("", pytest.skip), ("true", pytest.fail)])
def test_where_it_cannot_start_a_laptop_skips_and_ci_fails(
    etc: Path, monkeypatch: pytest.MonkeyPatch, ci: str, end: type
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("CI", ci)
    with pytest.raises(end.Exception, match="only root"), needed_cluster():
        pass


@pytest.mark.soak
def test_nothing_is_left_behind() -> None:
    before = {daemon.pid for daemon in step_daemons()}
    with needed_cluster() as cluster:
        command("sbatch", "--gpus=1", "--output=/dev/null", "--wrap", "exec sleep 987")
        wait_for(lambda: bool(sleepers()), "the job runs")
        processes = [psutil.Process(daemon.pid) for daemon in cluster.daemons.values()]
        assert cluster.folder.exists()
    assert not cluster.folder.exists()
    assert not (ETC / "slurm.conf").exists() and not (ETC / "gres.conf").exists()
    assert not any(process.is_running() for process in processes)
    assert {daemon.pid for daemon in step_daemons()} <= before
    assert not sleepers()


def sleepers() -> list[psutil.Process]:
    running = psutil.process_iter(["cmdline"])
    return [each for each in running if each.info["cmdline"] == ["sleep", "987"]]
