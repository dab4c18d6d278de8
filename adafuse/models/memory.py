"""How much memory and how many cores are free to this process, and how much decoding takes."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

import torch

from adafuse.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_MIB, _GIB = 1 << 20, 1 << 30

# The files of a limit and of what is taken, and what of that is given back when it is needed.
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")


def out_of_memory(error: BaseException) -> bool:
    """Say whether memory ran out; what the CPU's allocator raises has no class of its own."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def free_memory(device: torch.device) -> int:
    """Return the bytes that are free on a device now; on a CPU, those that limits leave."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free_host_memory()


def free_host_memory() -> int:
    """Return the bytes that are free to this process: of the machine, its cgroups and its job."""
    import psutil

    left: list[int] = [
        psutil.virtual_memory().available,
        *left_in_cgroups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")),
        *left_in_job(os.environ, held=psutil.Process().memory_info().rss),
    ]
    return max(0, min(left))


def left_in_cgroups(membership: Path, mount: Path) -> Iterator[int]:
    """Yield what each memory limit of a process's control groups leaves, in bytes.

    `membership` is the kernel's list of its groups (cgroups(7)), `mount` where they are mounted.
    """
    for folder, version in _groups(membership, mount, "memory"):
        yield from _left_in_group(folder, *(_V1 if version == 1 else _V2))


def _groups(membership: Path, mount: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Yield the folders of a process's groups and all above them, with the version of cgroups."""
    for line in (_text(membership) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top, version = (mount / controller, 1) if controllers else (mount, 2)
        group = PurePosixPath(path.lstrip("/"))
        for folder in (group, *group.parents):
            yield top / folder, version


def left_in_job(environment: Mapping[str, str], held: int) -> Iterator[int]:
    """Yield what a Slurm job's memory on this node leaves to a process that holds some, in bytes.

    Slurm counts in MiB, per node or per CPU of the job; 0 is all that the node has.
    """
    for mib, count in (
        (environment.get("SLURM_MEM_PER_NODE", ""), "1"),
        (environment.get("SLURM_MEM_PER_CPU", ""), environment.get("SLURM_CPUS_ON_NODE", "")),
    ):
        if mib.isdecimal() and count.isdecimal() and int(mib):
            yield int(mib) * int(count) * _MIB - held


def _left_in_group(folder: Path, limit: str, usage: str, cached: str) -> Iterator[int]:
    most, used = _text(folder / limit), _text(folder / usage)
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


def use_threads(threads: int | Literal["auto"]) -> None:
    """Give torch that many CPU threads in this process.

    "auto" takes the cores that are free now, and no more threads than torch had at the first call:
    those that OMP_NUM_THREADS allows, or one per core. On a machine that others use, threads that
    wait for a core make all of them wait.

    Raises:
        UserError: a number below 1.
    """
    most = _threads_at_first()
    if threads == "auto":
        torch.set_num_threads(min(most, free_cores()) if most > 1 else 1)
    elif isinstance(threads, int) and threads is not True and threads > 0:
        torch.set_num_threads(threads)
    else:
        raise UserError(f"threads is {threads!r}; give a number above 0, or auto")


@cache
def _threads_at_first() -> int:
    return torch.get_num_threads()


def free_cores(seconds: float = 0.2) -> int:
    """Return how many cores others leave to this process now, at least 1."""
    import psutil

    process = psutil.Process()
    busy = psutil.cpu_percent(interval=seconds, percpu=True)  # while this process waits
    allowed = process.cpu_affinity() if hasattr(process, "cpu_affinity") else range(len(busy))
    idle: float = sum(1 - busy[core] / 100 for core in allowed if core < len(busy))
    quotas = cores_of_cgroups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return max(1, round(min([idle, *quotas])))


def cores_of_cgroups(membership: Path, mount: Path) -> Iterator[float]:
    """Yield the cores that each of a process's control groups may take; see `left_in_cgroups`."""
    for folder, version in _groups(membership, mount, "cpu"):
        if version == 2:
            quota, _, period = (_text(folder / "cpu.max") or "max").partition(" ")
        else:
            files = (folder / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
            quota, period = (_text(file) or "" for file in files)
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)


MOST_ROWS = 64  # more gain little, and their results take long to come
TREE_NODES = 64  # uncommitted tokens, and rows of log-probabilities, that an example may need
SHARE = 0.8  # the part of the free memory that keys, values and log-probabilities may take


def cache_bytes(config: "PreTrainedConfig", dtype: torch.dtype) -> int:
    """Return the bytes of the keys and values of one token in the largest layer."""
    text = config.get_text_config()
    layers = text.per_layer_config if getattr(text, "is_heterogeneous", False) else [text]
    return dtype.itemsize * max(_cached(layer) for layer in layers)


def _cached(layer: "PreTrainedConfig") -> int:
    """Return the numbers of a token: its keys and values, or what MLA computes these from."""
    if (rank := getattr(layer, "kv_lora_rank", None)) is not None:
        return int(rank) + int(layer.qk_rope_head_dim)
    return 2 * _heads(layer) * _head_size(layer)


def _heads(layer: "PreTrainedConfig") -> int:
    return int(getattr(layer, "num_key_value_heads", None) or layer.num_attention_heads)


def _head_size(layer: "PreTrainedConfig") -> int:
    return int(getattr(layer, "head_dim", None) or layer.hidden_size // layer.num_attention_heads)


def rows_that_fit(needs: Sequence[tuple[torch.device, int]], examples: int) -> int:
    """Return how many examples fit at a time; each model `needs` some bytes per device for one."""
    needed: Counter[torch.device] = Counter()
    for device, size in needs:
        needed[device] += size
    rows = min(MOST_ROWS, max(1, examples))
    for device, size in needed.items():
        free = int(SHARE * free_memory(device))
        if size > free:
            raise UserError(
                f"one example needs {size / _GIB:.2f} GiB on {device} beside the models, and"
                f" {free / _GIB:.2f} GiB may be taken; lower max_new_tokens, shorten the prompts,"
                " or give the models other or more devices, or a smaller dtype"
            )
        rows = min(rows, free // size)
    return rows
