"""How much of a machine's memory a process may still take: nodes are shared, and jobs limited."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import torch

_MIB = 1 << 20

_VERSIONS = {
    "v2": ("memory.max", "memory.current", "inactive_file"),
    "v1": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""The files of a limit and of what is taken, and what of that is given back when it is needed."""


def free_memory(device: torch.device) -> int:
    """Return the bytes that are free on a device now, of a CPU those that limits leave."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free_host_memory()


def free_host_memory() -> int:
    """Return the bytes that are free to this process: of the machine, its cgroups and its job."""
    import psutil

    held = psutil.Process().memory_info().rss
    left: list[int] = [
        psutil.virtual_memory().available,
        *left_in_cgroups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")),
        *left_in_job(os.environ, held),
    ]
    return max(0, min(left))


def left_in_cgroups(membership: Path, mount: Path) -> Iterator[int]:
    """Yield what each memory limit of a process's control groups leaves, in bytes.

    A limit holds for all groups below it. In a container the groups above are not to be seen.

    Args:
        membership: the kernel's list of the groups of a process (cgroups(7)).
        mount: where the groups are mounted.
    """
    for line in (_text(membership) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        version, top = ("v1", mount / "memory") if controllers else ("v2", mount)
        group = PurePosixPath(path.lstrip("/"))
        for folder in (group, *group.parents):
            yield from _left_in_group(top / folder, *_VERSIONS[version])


def left_in_job(environment: Mapping[str, str], held: int) -> Iterator[int]:
    """Yield what a Slurm job's memory on this node leaves, in bytes.

    Args:
        environment: of the process; Slurm counts in MiB, of the node or of each of the job's CPUs
            there, and 0 is all that the node has.
        held: bytes that the process holds already.
    """
    for asked, times in (
        (environment.get("SLURM_MEM_PER_NODE", ""), "1"),
        (environment.get("SLURM_MEM_PER_CPU", ""), environment.get("SLURM_CPUS_ON_NODE", "")),
    ):
        if asked.isdecimal() and times.isdecimal() and int(asked):
            yield int(asked) * int(times) * _MIB - held


def _left_in_group(folder: Path, limit: str, taken: str, cached: str) -> Iterator[int]:
    most, used = _text(folder / limit), _text(folder / taken)
    if most is None or used is None or most == "max":
        return
    lines = (line.split() for line in (_text(folder / "memory.stat") or "").splitlines())
    given_back = next((int(value) for name, value in lines if name == cached), 0)
    yield int(most) - int(used) + given_back


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return None
