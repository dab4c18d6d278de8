"""What a process may still take of a machine's memory, by the limits that hold for it."""

from pathlib import Path

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adafuse.errors import UserError
from adafuse.models import memory as host_memory
from adafuse.models.memory import (
    cores_of_cgroups,
    free_cores,
    free_host_memory,
    free_memory,
    left_in_cgroups,
    left_in_job,
    use_threads,
)

UNLIMITED = "9223372036854771712"


def written(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def left(tmp_path: Path, membership: str) -> list[int]:
    (tmp_path / "membership").write_text(membership)
    return list(left_in_cgroups(tmp_path / "membership", tmp_path))


def test_every_group_above_a_process_limits_it(tmp_path: Path) -> None:
    written(tmp_path / "slurm/job_7", memory__max="1000", memory__current="300")
    written(tmp_path / "slurm/job_7/step_0", memory__max="max", memory__current="200")
    written(tmp_path / "slurm", memory__max="5000", memory__current="4900")
    assert left(tmp_path, "0::/slurm/job_7/step_0\n") == [700, 100]


def test_cached_files_that_the_kernel_gives_back_are_free(tmp_path: Path) -> None:
    stat = "anon 200\ninactive_file 60\nactive_file 40"
    written(tmp_path / "a", memory__max="1000", memory__current="300", memory__stat=stat)
    assert left(tmp_path, "0::/a") == [760]


def test_limits_of_version_1_are_read_too(tmp_path: Path) -> None:
    stat = "inactive_file 1\ntotal_inactive_file 50"
    job = {"memory__limit_in_bytes": "1000", "memory__usage_in_bytes": "300"}
    written(tmp_path / "memory/job", **job, memory__stat=stat)
    written(tmp_path / "memory", memory__limit_in_bytes=UNLIMITED, memory__usage_in_bytes="300")
    found = left(tmp_path, "9:name=systemd:/\n4:memory,hugetlb:/job\n1:cpu:/job\n0::/\n")
    assert found == [750, int(UNLIMITED) - 300]


def test_in_a_container_the_top_of_what_is_seen_counts(tmp_path: Path) -> None:
    written(tmp_path, memory__max="1000", memory__current="300")
    assert left(tmp_path, "0::/only/seen/outside\n") == [700]


def test_without_control_groups_nothing_is_limited(tmp_path: Path) -> None:
    assert list(left_in_cgroups(tmp_path / "absent", tmp_path)) == []
    assert left(tmp_path, "0::/\n4:memory:/\n") == []


def test_a_job_has_what_it_asked_slurm_for_less_what_it_holds() -> None:
    assert list(left_in_job({"SLURM_MEM_PER_NODE": "2"}, held=1000)) == [2 * 1024**2 - 1000]
    per_cpu = {"SLURM_MEM_PER_CPU": "2", "SLURM_CPUS_ON_NODE": "3"}
    assert list(left_in_job(per_cpu, held=1000)) == [6 * 1024**2 - 1000]


@pytest.mark.parametrize("said", ["", "0", "all", "-1"])
def test_a_job_that_has_the_whole_node_is_not_limited(said: str) -> None:
    assert list(left_in_job({"SLURM_MEM_PER_NODE": said}, held=1)) == []
    assert list(left_in_job({}, held=1)) == []


def test_the_least_of_all_that_limits_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "left_in_cgroups", lambda *_: iter([]))
    monkeypatch.delenv("SLURM_MEM_PER_NODE", raising=False)
    assert free_host_memory() > 10 << 20
    monkeypatch.setenv("SLURM_MEM_PER_NODE", str((psutil.Process().memory_info().rss >> 20) + 10))
    assert free_memory(torch.device("cpu")) <= 10 << 20
    monkeypatch.setattr(host_memory, "left_in_cgroups", lambda *_: iter([3 << 20, 2 << 20]))
    assert free_memory(torch.device("cpu")) == 2 << 20
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "1")
    assert free_memory(torch.device("cpu")) == 0, "more is held than the job has"


@given(st.integers(1, 2**45), st.integers(0, 2**45), st.integers(0, 2**40))
def test_less_is_left_the_more_is_held(asked: int, held: int, more: int) -> None:
    environment = {"SLURM_MEM_PER_NODE": str(asked)}
    (before,), (after,) = (left_in_job(environment, each) for each in (held, held + more))
    assert after == before - more


def cores(tmp_path: Path, membership: str) -> list[float]:
    (tmp_path / "membership").write_text(membership)
    return list(cores_of_cgroups(tmp_path / "membership", tmp_path))


def test_quotas_of_both_versions_limit_the_cores(tmp_path: Path) -> None:
    written(tmp_path / "pod/container", cpu__max="150000 100000")
    written(tmp_path / "pod", cpu__max="max 100000")
    assert cores(tmp_path, "0::/pod/container") == [1.5]
    written(tmp_path / "cpu/job", cpu__cfs_quota_us="400000", cpu__cfs_period_us="100000")
    written(tmp_path / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert cores(tmp_path, "3:cpu,cpuacct:/job\n") == [4.0]


@pytest.mark.parametrize(
    ("busy", "allowed", "quotas", "free"),
    [
        ([0.0, 0.0, 0.0, 0.0], [0, 1, 2, 3], [], 4),
        ([98.0, 40.0, 3.0, 0.0], [0, 1, 2, 3], [], 3),
        ([98.0, 97.0, 0.0, 0.0], [0, 1], [], 1),
        ([0.0, 0.0, 0.0, 0.0], [0, 1, 2, 3], [2.0], 2),
        ([0.0, 0.0], [0, 1], [0.5], 1),
    ],
)
def test_cores_are_free_that_are_allowed_and_idle(monkeypatch, busy, allowed, quotas, free) -> None:
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval, percpu: busy)
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: allowed)
    monkeypatch.setattr(host_memory, "cores_of_cgroups", lambda membership, mount: quotas)
    assert free_cores() == free


def test_auto_takes_what_is_free_and_no_more_than_torch_had(monkeypatch) -> None:
    monkeypatch.setattr(host_memory, "_threads_at_first", lambda: 4)
    before = torch.get_num_threads()
    try:
        for threads, free, wanted in ((8, 0, 8), ("auto", 3, 3), (1, 0, 1), ("auto", 9, 4)):
            monkeypatch.setattr(host_memory, "free_cores", lambda free=free: free)
            use_threads(threads)
            assert torch.get_num_threads() == wanted
    finally:
        torch.set_num_threads(before)
    for wrong in (0, True):
        with pytest.raises(UserError, match=f"threads is {wrong}; give a number above 0, or auto"):
            use_threads(wrong)
