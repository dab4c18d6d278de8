"""What is installed here, and whether it is what the package asks for."""

import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from adafuse.models.findings import Device, Finding, Installation, Package
from adafuse.models.memory import free_memory
from adafuse.version import __version__

EXTRAS = ("quantized", "bertscore", "lm-eval")
"""Those that a user may want; the others are for developers."""
OLDEST_PYTHON = (3, 11)
_DRIVER = Path("/proc/driver/nvidia")


def look_around() -> tuple[Installation, list[Finding]]:
    """Return what is installed, and what is wrong with it."""
    import torch

    packages = tuple(_packages())
    found = Installation(
        python=platform.python_version(),
        adafuse=__version__,
        packages=packages,
        cuda=torch.version.cuda,
        devices=tuple(_devices()),
        snakemake=_command("snakemake"),
        sbatch=shutil.which("sbatch"),
    )
    wrong = [*_python(), *_unfit(packages), *_no_gpu(found), *_no_workflow(found)]
    return found, wrong


def fits(requirement: Requirement, installed: str | None) -> bool:
    """Whether a version is there and in the range that is asked for."""
    return installed is not None and requirement.specifier.contains(installed, prereleases=True)


def _packages() -> Iterator[Package]:
    for requirement in map(Requirement, _requirements()):
        extra = _extra(requirement)
        if extra is None or extra in EXTRAS:
            installed = _version(requirement.name)
            wanted = str(requirement.specifier)
            there = fits(requirement, installed)
            yield Package(requirement.name, wanted, installed, there, extra)


def _requirements() -> list[str]:
    try:
        return requires("adafuse") or []
    except PackageNotFoundError:
        return []


def _extra(requirement: Requirement) -> str | None:
    """Return the extra that a requirement belongs to; "" where it is for other machines."""
    marker = requirement.marker
    if marker is None or marker.evaluate({"extra": ""}):
        return None
    return next((name for name in EXTRAS if marker.evaluate({"extra": name})), "")


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


def _python() -> Iterator[Finding]:
    if sys.version_info < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        yield Finding(True, f"Python {platform.python_version()} is too old; use {wanted} or newer")


def _unfit(packages: tuple[Package, ...]) -> Iterator[Finding]:
    if not packages:
        yield Finding(
            False, "adafuse is not installed, so that its requirements are unknown; pip install it"
        )
    for each in packages:
        if each.fits or (each.extra and each.installed is None):
            continue
        there = f"is {each.installed}" if each.installed else "is not installed"
        fix = f"run pip install '{each.name}{each.wanted}'"
        yield Finding(not each.extra, f"package {each.name} {there}; {fix}")


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
        yield Finding(False, "the command snakemake is not found; activate the environment of it")
