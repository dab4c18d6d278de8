"""How much memory is free to this process, and how much decoding takes on which device."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import torch

from adafuse.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_MIB, _GIB = 1 << 20, 1 << 30

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


MOST_ROWS = 64
"""More rows gain little, and their results take long to come."""
TREE_NODES = 64
"""Per example so many uncommitted tokens, and rows of log-probabilities, are allowed for."""
SHARE = 0.8
"""The part of the free memory that keys, values and log-probabilities may take."""


def cache_bytes(config: "PreTrainedConfig", dtype: torch.dtype) -> int:
    """Return the bytes of the keys and values of one token in one layer."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * int(heads) * int(head) * dtype.itemsize


def rows_that_fit(needs: Sequence[tuple[torch.device, int]], examples: int) -> int:
    """Return how many of `examples` can be decoded at a time on every device.

    `needs` are the bytes of one example on the devices of each model.

    Raises:
        UserError: not even one.
    """
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
