"""What is installed here, and whether it fits together."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch

from adafuse.errors import install
from adafuse.models.memory import free_memory
from adafuse.version import __version__, installed_version

PACKAGES = {
    "torch": None,
    "transformers": None,
    "tokenizers": None,
    "accelerate": None,
    "snakemake": "workflow",
    "altair": "report",
    "lm_eval": "lm-eval",
    "fastapi": "serve",
    "bitsandbytes": "quantized",
    "gguf": "gguf",
    "peft": "adapters",
    "bert-score": "bertscore",
}
"""Packages whose versions are reported, each with the extra that installs it."""
_DRIVER = Path("/proc/driver/nvidia")


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence with the fix; a `problem` stops decoding, anything else is a warning."""

    problem: bool
    sentence: str


problem, warning = partial(Finding, True), partial(Finding, False)


@dataclass(frozen=True, slots=True)
class Device:
    """Where models can go, and the bytes that are free there."""

    name: str
    kind: str
    free: int


@dataclass(frozen=True, slots=True)
class Installation:
    """Versions of packages, devices, and the commands of the workflow; None: not found."""

    python: str
    adafuse: str
    packages: Mapping[str, str | None]
    cuda: str | None
    devices: tuple[Device, ...]
    snakemake: str | None
    sbatch: str | None


def look_around() -> tuple[Installation, list[Finding]]:
    """Return what is installed, and what is wrong with it."""
    # Commands of this environment are found although it is not activated.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    installation = Installation(
        python=platform.python_version(),
        adafuse=__version__,
        packages={name: installed_version(name) for name in PACKAGES},
        cuda=torch.version.cuda,
        devices=tuple(_devices()),
        snakemake=shutil.which("snakemake", path=path),
        sbatch=shutil.which("sbatch"),
    )
    return installation, list(_wrong(installation))


def _devices() -> Iterator[Device]:
    yield Device("cpu", platform.machine(), free_memory(torch.device("cpu")))
    for index in range(torch.cuda.device_count()):
        card = torch.device("cuda", index)
        with suppress(RuntimeError):  # the driver is too old for torch
            yield Device(str(card), torch.cuda.get_device_name(card), free_memory(card))


def _wrong(installation: Installation) -> Iterator[Finding]:
    checked = _pip_check()
    if "No module named pip" in checked.stderr:
        yield warning("pip is not installed, so whether the versions fit was not checked")
    for line in checked.stdout.splitlines() if checked.returncode else ():
        of_adafuse = line.startswith("adafuse ")  # conflicts of other packages are warnings
        yield Finding(of_adafuse, f"{line.rstrip('.')}; pip install a version that fits")
    if len(installation.devices) <= 1 and (_DRIVER.exists() or shutil.which("nvidia-smi")):
        if installation.cuda is None:
            why = "torch was built without CUDA; install a build of it for CUDA"
        else:
            why = (
                f"torch (CUDA {installation.cuda}) finds no GPU; check nvidia-smi,"
                " CUDA_VISIBLE_DEVICES"
            )
        yield warning(f"there is an NVIDIA driver, but {why}")
    if installation.snakemake is None:
        yield warning(f"snakemake is not installed; {install('workflow')}")


@cache
def _pip_check() -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
