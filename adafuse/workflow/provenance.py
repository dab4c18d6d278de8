"""Where a result comes from: versions, and the state of the source code."""

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from adafuse.version import ENGINE_VERSION, __version__, installed_version

_PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "bitsandbytes", "pyarrow")


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit that the package runs from, and whether its tracked files were changed."""

    commit: str | None
    dirty: bool | None


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a job runs; `gpus` are their names."""

    host: str
    cuda_visible_devices: str | None
    slurm_job: str | None
    gpus: tuple[str, ...] = ()

    def __str__(self) -> str:
        job = f", Slurm job {self.slurm_job}" if self.slurm_job else ""
        cards = self.cuda_visible_devices
        return self.host + job + (f", CUDA_VISIBLE_DEVICES={cards}" if cards is not None else "")


def this_machine() -> Machine:
    """Return where this process runs, a Slurm node under Slurm's name for it."""
    torch: Any = sys.modules.get("torch")  # not imported for this: the models have done so
    cards = range(torch.cuda.device_count()) if torch else ()
    return Machine(
        host=os.environ.get("SLURMD_NODENAME") or platform.node(),
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        slurm_job=os.environ.get("SLURM_JOB_ID"),
        gpus=tuple(torch.cuda.get_device_name(card) for card in cards),
    )


def versions() -> dict[str, str | int | None]:
    """Return the versions that a result may depend on, without importing the packages."""
    return {
        "adafuse": __version__,
        "engine": ENGINE_VERSION,
        "python": platform.python_version(),
        **{package: installed_version(package) for package in _PACKAGES},
    }


@lru_cache(maxsize=1)
def source_commit() -> Commit:
    root = Path(__file__).resolve().parents[2]
    # An installed package may lie inside somebody else's checkout, for instance in its .venv.
    if not (root / ".git").exists():
        return Commit(None, None)
    commit = _git(root, "rev-parse", "HEAD")
    status = _git(root, "status", "--porcelain", "--untracked-files=no")
    return Commit(commit or None, None if status is None else bool(status))


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
