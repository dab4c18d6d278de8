"""What is installed here, and whether it fits together."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from adafuse.models.findings import Device, Finding, Installation
from adafuse.models.memory import free_memory
from adafuse.version import __version__

PACKAGES = {
    "torch": None,
    "transformers": None,
    "tokenizers": None,
    "accelerate": None,
    "snakemake": "workflow",
    "altair": "report",
    "lm_eval": "lm-eval",
    "bitsandbytes": "quantized",
    "bert-score": "bertscore",
}
"""Packages whose versions are reported, each with the extra that brings it."""
_DRIVER = Path("/proc/driver/nvidia")


def look_around() -> tuple[Installation, list[Finding]]:
    """Return what is installed, and what is wrong with it."""
    import torch

    found = Installation(
        python=platform.python_version(),
        adafuse=__version__,
        packages={name: _version(name) for name in PACKAGES},
        cuda=torch.version.cuda,
        devices=tuple(_devices()),
        snakemake=_command("snakemake"),
        sbatch=shutil.which("sbatch"),
    )
    return found, [*_conflicts(), *_no_gpu(found), *_no_workflow(found)]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices() -> Iterator[Device]:
    import torch

    yield Device("cpu", platform.machine(), free_memory(torch.device("cpu")))
    for index in range(torch.cuda.device_count()):
        card = torch.device("cuda", index)
        yield Device(str(card), torch.cuda.get_device_name(card), free_memory(card))


def _command(name: str) -> str | None:
    """Return where a command of this environment is, on the path or beside its Python."""
    beside = Path(sys.executable).with_name(name)
    return shutil.which(name) or (str(beside) if beside.is_file() else None)


def _conflicts() -> Iterator[Finding]:
    """Yield what `pip check` says; only what adafuse itself requires is a problem."""
    checked = _pip_check()
    if "No module named pip" in checked.stderr:
        yield Finding(False, "pip is not installed, so whether the versions fit was not checked")
    for line in checked.stdout.splitlines() if checked.returncode else ():
        own = line.startswith("adafuse ")
        yield Finding(own, f"{line.rstrip('.')}; pip install a version that fits")


def _pip_check() -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)


def _no_gpu(found: Installation) -> Iterator[Finding]:
    if len(found.devices) > 1 or not (_DRIVER.exists() or shutil.which("nvidia-smi")):
        return
    if found.cuda is None:
        why = "torch was built without CUDA; install a build of it for CUDA"
    else:
        why = f"torch (CUDA {found.cuda}) finds no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES"
    yield Finding(False, f"there is an NVIDIA driver, but {why}")


def _no_workflow(found: Installation) -> Iterator[Finding]:
    if found.snakemake is None:
        yield Finding(
            False, "the command snakemake is not found; pip install 'adafuse[workflow]' brings it"
        )
