"""What jobs would fail of on this machine: its GPUs, versions and disks, and what is not here."""

import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

import psutil
import torch

from adafuse.config.config import Config
from adafuse.errors import UserError
from adafuse.models.files import weight_bytes
from adafuse.models.hub import HubRefusesError, ask_hub, hub_answers
from adafuse.models.installation import look_around
from adafuse.models.memory import free_host_memory, free_memory
from adafuse.models.spec import ModelEntry
from adafuse.storage.files import write_bytes
from adafuse.storage.journal import only_writer
from adafuse.workflow.jobs import decode_job, gpus, loaded
from adafuse.workflow.prefetch import needs_of

_MB, _GB = 1e6, 1e9
_SAMPLE = 64 << 20  # bytes that are written to measure the speed
_SLOW, _TIGHT = 20.0, 5.0  # MB/s; GB
_LATE = 5.0  # seconds by which the clock of a file system may differ
_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True)
class Check:
    """What was found, and for `warn` and `fail` what to do; jobs do not succeed with a `fail`."""

    name: str
    status: Literal["ok", "warn", "fail"]
    text: str


def preflight(config: Config | None) -> list[Check]:
    """Check this machine, for a configuration if there is one.

    Less than 100 MB are written into the results folder, or into the current one, and removed.
    """
    results = Path("." if config is None else config.results)
    checks = [*_node(), *_versions(), *_cards(config), *_disks(results), _writing(results), *_hub()]
    return [*checks, *(_needs(config) if config is not None else ())]


def _node() -> Iterator[Check]:
    host, number = (os.environ.get(name) for name in ("SLURMD_NODENAME", "SLURM_JOB_ID"))
    job = f"Slurm job {number}"
    if number is None:
        job = "not in a Slurm job" if shutil.which("sbatch") else "no Slurm here"
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    memory = f"{free_host_memory() / _GB:.1f} GB of memory free"
    yield Check("node", "ok", f"{host or platform.node()}, {job}, {cores} cores, {memory}")


def _versions() -> Iterator[Check]:
    here, findings = look_around()
    names = ("torch", "transformers", "snakemake")
    versions = (f"{name} {here.packages[name] or 'not installed'}" for name in names)
    told = f"adafuse {here.adafuse}, Python {here.python}, {', '.join(versions)}"
    yield Check("versions", "ok", told)
    for finding in findings:
        yield Check("versions", "fail" if finding.problem else "warn", finding.sentence)


def _cards(config: Config | None) -> Iterator[Check]:
    driver = f"driver {found}" if (found := _driver()) else "no NVIDIA driver"
    cuda = f"CUDA {torch.version.cuda}" if torch.version.cuda else "torch built without CUDA"
    cards = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    for card in cards:
        about = f"{card}, {driver}, {cuda}"
        try:
            about += f", {torch.cuda.get_device_name(card)}"
            ones = torch.ones(64, 64, device=card)
            computed = float((ones @ ones).sum()) == 64**3
            about += f", {free_memory(card) / _GB:.1f} GB free"
        except RuntimeError as error:  # an old driver, no kernel for this card, others' memory
            about, computed = f"{about}: {str(error).splitlines()[0]}", False
        fix = "it does not compute; use another node, or torch for this driver (docs/gpu.md)"
        yield Check("gpu", *(("ok", about) if computed else ("fail", f"{about}; {fix}")))
    needed = {} if config is None else _needed(config)
    most = max(needed.values(), default=0)
    none = "" if cards else f"none ({driver}, {cuda}); "
    if len(cards) < most:
        login = "SLURM_JOB_ID" not in os.environ and shutil.which("sbatch") is not None
        ask = f"submit this as a Slurm job with --gpus={most} (docs/hpc.md)"
        fix = ask if login else "ask for more, or lower decode.gpu (docs/gpu.md)"
        text = f"{none}{len(cards)} of the {most} that a job asks for; {fix}"
        yield Check("gpu", "warn" if login else "fail", text)
    elif not cards:
        yield Check("gpu", "ok", f"{none}no job asks for one" if config else none.rstrip("; "))
    elif config is not None:
        yield from _weights(config, needed, cards)


def _needed(config: Config) -> dict[str, int]:
    """Return the GPUs that a job of each run asks for."""
    needed: dict[str, int] = {}
    for benchmark, run in product(config.benchmarks, config.decoded_runs):
        own = config.runs[run].cluster.gpu
        cards = gpus(decode_job(config, benchmark, run), config.decode.gpu) if own is None else own
        needed[run] = max(cards, needed.get(run, 0))
    return needed


def _weights(config: Config, needed: dict[str, int], cards: list[torch.device]) -> Iterator[Check]:
    """Find the runs whose weights, as far as they are here, are larger than their GPUs."""
    benchmark = next(iter(config.benchmarks))
    for run, count in needed.items():
        models = loaded(decode_job(config, benchmark, run)) if count else []
        sizes = [weight_bytes(m.path, m.revision, m.dtype, m.quantization) or 0 for m in models]
        free = sum(free_memory(card) for card in cards[:count])
        if sum(sizes) > free:
            taken = f"the weights of run {run!r} take {sum(sizes) / _GB:.1f} GB"
            fix = "use more or larger GPUs (docs/large-models.md)"
            text = f"{taken}, and {free / _GB:.1f} GB are free on {count} GPUs; {fix}"
            yield Check("gpu", "fail", text)


def _driver() -> str | None:
    try:
        found = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", _DRIVER.read_text(encoding="utf-8"))
    except OSError:
        return None
    return found and found[1]


def _disks(results: Path) -> Iterator[Check]:
    from huggingface_hub.constants import HF_HUB_CACHE

    folders = {"results": results, "hub cache": Path(HF_HUB_CACHE)}
    for name, folder in (folders | {"temporary": Path(tempfile.gettempdir())}).items():
        place = _existing(folder)
        free = shutil.disk_usage(place).free / _GB
        text = f"{folder.absolute()} ({_file_system(place)}), {free:.1f} GB free"
        if not os.access(place, os.W_OK | os.X_OK):
            # A cache that others fill is read only.
            status: Literal["warn", "fail"] = "warn" if name == "hub cache" else "fail"
            yield Check(name, status, f"{text}; it cannot be written: name another folder")
        elif free < _TIGHT:
            yield Check(name, "warn", f"{text}; make room")
        else:
            yield Check(name, "ok", text)


def _existing(folder: Path) -> Path:
    whole = folder.absolute()
    return next(each for each in (whole, *whole.parents) if each.is_dir())


def _file_system(folder: Path) -> str:
    mounts = {Path(each.mountpoint): each.fstype for each in psutil.disk_partitions(all=True)}
    return next((mounts[each] for each in (folder, *folder.parents) if each in mounts), "unknown")


def _writing(results: Path) -> Check:
    """Write as jobs do: much, a small file whole or not at all, and with a lock."""
    block = os.urandom(1 << 20)
    try:
        with tempfile.TemporaryDirectory(prefix=".preflight-", dir=_existing(results)) as made:
            file, begun = Path(made, "sample"), time.perf_counter()
            with file.open("wb") as sample:
                for _ in range(_SAMPLE // len(block)):
                    sample.write(block)
                sample.flush()
                os.fsync(sample.fileno())
            speed = _SAMPLE / _MB / (time.perf_counter() - begun)
            late = file.stat().st_mtime - time.time()
            begun = time.perf_counter()
            with only_writer(Path(made, "small")):
                write_bytes(Path(made, "small"), b"row")
            small = 1000 * (time.perf_counter() - begun)
    except (OSError, UserError) as error:
        return Check("writing", "fail", f"{' '.join(str(error).split())}; name another `results`")
    text = f"{speed:.0f} MB/s; a small file with its lock takes {small:.0f} ms"
    if abs(late) > _LATE:
        text += f"; the clock of the file system differs by {late:.0f} s: tell its administrator"
        return Check("writing", "warn", text)
    if speed < _SLOW:
        return Check("writing", "warn", f"{text}; name a faster file system as `results`")
    return Check("writing", "ok", text)


def _hub() -> Iterator[Check]:
    from huggingface_hub import get_token
    from huggingface_hub.constants import HF_HUB_OFFLINE

    answers = hub_answers()
    if HF_HUB_OFFLINE:
        yield Check("hub", "ok", "offline mode (HF_HUB_OFFLINE is set)")
    elif answers:
        yield Check("hub", "ok", "it answers; with HF_HUB_OFFLINE=1 jobs would not depend on it")
    else:
        text = "it does not answer, and jobs would wait for it; export HF_HUB_OFFLINE=1"
        yield Check("hub", "warn", text)
    if get_token() is None:
        yield Check("token", "ok", "none; only gated models and data sets need HF_TOKEN")
    elif not answers:
        yield Check("token", "ok", "there is one; the hub was not asked about it")
    else:
        yield _token()


def _token() -> Check:
    try:
        ask_hub(lambda hub: hub.whoami())
    except HubRefusesError:
        text = "the hub does not know it; make a new one and set HF_TOKEN"
        return Check("token", "fail", text)
    except OSError as error:
        return Check("token", "warn", f"the hub does not say whether it is valid ({error})")
    return Check("token", "ok", "the hub knows it")


def _needs(config: Config) -> Iterator[Check]:
    needs = needs_of(config)
    here = sum(need.here for need in needs)
    counts = f"{here} of {len(needs)} models and data sets of the hub are here"
    yield Check("needs", "ok", counts if needs else "no model or data set of the hub")
    for need in needs:
        unpinned = isinstance(need.subject, ModelEntry) and need.subject.revision is None
        if need.here and unpinned:
            fix = "run `adafuse pin CONFIG` or `snakemake prefetch`, or its changes are not noticed"
            yield Check("needs", "warn", f"{need.name}; {fix}")
        elif not need.here:
            why = need.refusal(config)
            fix = (
                why or f"{need.name} is missing; run `snakemake prefetch` where there is a network"
            )
            yield Check("needs", "warn" if hub_answers() and why is None else "fail", fix)
