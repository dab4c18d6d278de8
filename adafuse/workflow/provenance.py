"""Where a result comes from: versions, and the state of the source code."""

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from adafuse.version import ENGINE_VERSION, __version__

_PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "bitsandbytes", "pyarrow")


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit that the package runs from, and whether its tracked files were changed."""

    commit: str | None
    dirty: bool | None


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a job runs: a host, its GPUs by name, and the cluster's number of the job."""

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
    gpus: tuple[str, ...] = ()
    torch = sys.modules.get("torch")  # not imported for this: the models have done so
    if torch is not None and torch.cuda.is_available():
        gpus = tuple(torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count()))
    host = os.environ.get("SLURMD_NODENAME") or platform.node()
    cards, job = os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("SLURM_JOB_ID")
    return Machine(host, cards, job, gpus)


def versions() -> dict[str, str | int | None]:
    """Return the versions that a result may depend on, without importing the packages."""
    found: dict[str, str | int | None] = {"adafuse": __version__, "engine": ENGINE_VERSION}
    found["python"] = platform.python_version()
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


@lru_cache(maxsize=1)
def source_commit() -> Commit:
    """Return the commit of the checkout that holds this package; None outside a checkout."""
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
