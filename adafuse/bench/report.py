"""A benchmark run as JSON and as a table."""

import json
import os
import platform
import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import torch

from adafuse.bench.measure import Timing
from adafuse.bench.suite import Ratio
from adafuse.models.language_model import LanguageModel
from adafuse.pipeline.provenance import source_commit, versions


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the figures were measured."""

    processor: str
    cores: int
    threads: int
    device: str
    dtype: str
    date: str


def machine(model: LanguageModel) -> Machine:
    """Describe this machine and where the models are."""
    device = model.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        device=name,
        dtype=str(model.network.dtype).removeprefix("torch."),
        date=datetime.now(UTC).date().isoformat(),
    )


@dataclass(frozen=True, slots=True)
class Peak:
    """The most memory that the process had, in MiB; `device` of a CUDA device, else None."""

    host: float
    device: float | None = None


def peak(model: LanguageModel) -> Peak:
    """Return the most memory that was used so far."""
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if model.device.type != "cuda":
        return Peak(host)
    return Peak(host, torch.cuda.max_memory_allocated(model.device) / (1 << 20))


def to_json(
    where: Machine, command: str, timings: Sequence[Timing], ratios: Sequence[Ratio], most: Peak
) -> str:
    """Return everything that was measured."""
    values = {
        "machine": asdict(where),
        "versions": versions(),
        "git": asdict(source_commit()),
        "command": command,
        "peak_mib": asdict(most),
        "timings": [{**asdict(t), "tokens_per_second": t.tokens_per_second} for t in timings],
        "ratios": [asdict(ratio) for ratio in ratios],
    }
    return json.dumps(values, indent=2) + "\n"


def to_markdown(
    where: Machine, command: str, timings: Sequence[Timing], ratios: Sequence[Ratio], most: Peak
) -> str:
    """Return the same as two tables, ratios first."""
    on_device = "" if most.device is None else f" and {most.device:,.0f} MiB on the device"
    lines = [
        f"`{command}` on {where.date}: {where.processor}, {where.cores} cores, {where.threads}"
        f" threads, {where.device}, {where.dtype}; peak memory {most.host:,.0f} MiB{on_device}.",
        "",
        "| ratio of medians | value | target |",
        "| --- | ---: | --- |",
        *(f"| {ratio.name} | {ratio.value:.2f} | {ratio.target} |" for ratio in ratios),
        "",
        "| case | prompts | seconds (quartiles) | tokens/s | forwards per token | agreement |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *map(_row, timings),
    ]
    return "\n".join(lines) + "\n"


def _row(timing: Timing) -> str:
    done = timing.outcome
    per_token = (f / t if t else 0.0 for f, t in zip(done.forwards, done.tokens, strict=True))
    cells = [
        timing.case,
        str(timing.prompts),
        f"{timing.seconds:.3f} ({timing.low:.3f} to {timing.high:.3f})",
        f"{timing.tokens_per_second:.0f}",
        " + ".join(f"{value:.2f}" for value in per_token),
        "" if done.agreement is None else f"{100 * done.agreement:.0f} %",
    ]
    return f"| {' | '.join(cells)} |"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
