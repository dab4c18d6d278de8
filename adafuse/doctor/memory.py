"""Whether models and a batch fit into the memory that is free."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from adafuse.doctor.records import DeviceLoad, Finding, ModelFacts
from adafuse.engine.capacity import MOST_ROWS, SHARE, TREE_NODES
from adafuse.models.devices import Placement, free_memory

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples at a time (None: as many as fit), and the tokens of a prompt and of an answer."""

    rows: int | None
    prompt_tokens: int
    max_new_tokens: int


def device_loads(models: Sequence[tuple[ModelFacts, Placement]], batch: Batch) -> list[DeviceLoad]:
    """Return what each device has to hold; a model that is spread takes the same of each."""
    weights: dict[torch.device, float] = defaultdict(float)
    per_row: dict[torch.device, float] = defaultdict(float)
    for facts, placement in models:
        if facts.weights is None or facts.cache is None:
            continue
        longest = batch.prompt_tokens + batch.max_new_tokens
        slots = min(longest, facts.context or longest) + TREE_NODES
        for device in placement.devices:
            weights[device] += facts.weights / len(placement.devices)
            per_row[device] += slots * facts.cache / len(placement.devices)
        per_row[placement.first] += TREE_NODES * 4 * facts.vocabulary
    return [_load(device, weights[device], per_row[device], batch.rows) for device in weights]


def wrong_with(
    loads: Sequence[DeviceLoad], models: Sequence[tuple[ModelFacts, Placement]]
) -> Iterator[Finding]:
    """Say what does not fit on the devices that these models are on."""
    for load in loads:
        there = [facts for facts, place in models if load.device in map(str, place.devices)]
        names = " and ".join(facts.name for facts in there)
        free = f"{load.free / _GIB:.2f} GiB are free on {load.device}"
        if load.weights > load.free:
            yield Finding(
                True,
                f"the weights of {names} take {load.weights / _GIB:.2f} GiB, and {free}; use other"
                " or more devices (--device balanced), a smaller --dtype, or --quantization",
            )
        elif load.fits < max(1, load.rows):
            yield Finding(True, _too_many(load, free))


def _too_many(load: DeviceLoad, free: str) -> str:
    needed = load.weights + max(1, load.rows) * load.per_row
    fix = f"use --batch-size {load.fits}" if load.fits else "lower --max-new-tokens"
    return (
        f"{max(1, load.rows)} examples at a time and the weights take {needed / _GIB:.2f} GiB, and"
        f" {free}, of which some stays for the rest; {fix}, or other or more devices"
    )


def _load(device: torch.device, weights: float, per_row: float, rows: int | None) -> DeviceLoad:
    free = free_memory(device)
    room = max(0, int(SHARE * (free - weights) / per_row)) if per_row else MOST_ROWS
    return DeviceLoad(
        str(device),
        free,
        int(weights),
        int(per_row),
        min(room, MOST_ROWS) if rows is None else rows,
        room,
    )
