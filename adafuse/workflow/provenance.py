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
class Place:
    """Where a job runs: a machine, its GPUs by name, and the cluster's number of the job."""

    host: str
    cuda_visible_devices: str | None
    slurm_job: str | None
    gpus: tuple[str, ...] = ()

    def told(self) -> str:
        """Return the place in words."""
        job = f", Slurm job {self.slurm_job}" if self.slurm_job else ""
        cards = self.cuda_visible_devices
        return self.host + job + (f", CUDA_VISIBLE_DEVICES={cards}" if cards is not None else "")


def place() -> Place:
    """Return where this process runs, a Slurm node under Slurm's name for it."""
    host = os.environ.get("SLURMD_NODENAME") or platform.node()
    job = os.environ.get("SLURM_JOB_ID")
    return Place(host, os.environ.get("CUDA_VISIBLE_DEVICES"), job, _gpus())


def _gpus() -> tuple[str, ...]:
    """Return the names of the CUDA devices, where the models have already loaded torch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return ()
    return tuple(torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count()))


def versions() -> dict[str, str | int | None]:
    """Return the versions that a result may depend on, without importing the packages."""
    found: dict[str, str | int | None] = {"adafuse": __version__, "engine": ENGINE_VERSION}
    found["python"] = platform.python_version()
    return found | {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


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
