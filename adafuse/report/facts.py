"""What each run cost and where it came from, as its merged traces say."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adafuse.scoring.intervals import Estimate, bootstrap
from adafuse.workflow.traces import read_metadata, read_rows

_COLUMNS = ["seconds", "stop_reason", "tokens", "forwards"]


@dataclass(frozen=True, slots=True)
class Cost:
    """A run on a benchmark: `seconds` per example with their 95 % interval (bootstrap).

    `tokens` and `forwards` are means per example over the models together; `errors` counts examples
    that could not be decoded, which are in no mean. None where no example was decoded. Only the
    seconds of `timed` runs, which had the machine to themselves, can be compared.
    """

    benchmark: str
    run: str
    n: int
    errors: int
    seconds: Estimate | None
    tokens: float | None
    forwards: float | None
    timed: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """How a run was made, over all its shards; several values where shards differ."""

    run: str
    facts: Mapping[str, Sequence[str]]


def cost(trace: Path, benchmark: str, run: str, *, timed: bool = False) -> Cost:
    """Summarise what decoding a merged trace cost.

    Raises:
        UserError: it cannot be read.
    """
    import numpy as np

    rows = read_rows(trace, _COLUMNS)
    good = [row for row in rows if row["stop_reason"] != "error"]
    if not good:
        return Cost(benchmark, run, len(rows), len(rows), None, None, None, timed)
    seconds = np.array([row["seconds"] for row in good])
    low, high = bootstrap(len(good), lambda chosen: float(seconds[chosen].mean()))
    return Cost(
        benchmark=benchmark,
        run=run,
        n=len(rows),
        errors=len(rows) - len(good),
        seconds=Estimate(float(seconds.mean()), low, high),
        tokens=float(np.mean([sum(row["tokens"]) for row in good])),
        forwards=float(np.mean([sum(row["forwards"]) for row in good])),
        timed=timed,
    )


def origin(traces: Iterable[Path], run: str) -> Origin:
    """Put together what the metadata of a run's traces say of models, settings and versions.

    Raises:
        UserError: a trace cannot be read.
    """
    facts: dict[str, dict[str, None]] = {}
    for trace in traces:
        metadata = read_metadata(trace)
        for found in map(_shard_facts, metadata.get("shards", [])):
            for name, value in found.items():
                facts.setdefault(name, {})[value] = None
        if "rows_from" in metadata:
            facts.setdefault("rows from", {})[_counts(metadata["rows_from"])] = None
    return Origin(run, {name: list(values) for name, values in facts.items()})


def _shard_facts(shard: Mapping[str, Any]) -> dict[str, str]:
    job, versions, place = shard["job"], shard["versions"], shard.get("place", {})
    weights = job["weights"] or [1] * len(job["models"])
    return {
        "models": "; ".join(map(_model, job["models"])),
        "weights": ", ".join(f"{weight:g}" for weight in weights),
        "method": job["method"],
        "options": ", ".join(f"{name} = {value}" for name, value in job["options"].items()),
        "number type": job["dtype"],
        "devices": ", ".join(job["devices"]),
        "quantization": ", ".join(str(each or "none") for each in job["quantization"]),
        "engine": f"{job['engine']}, batch size {job['batch_size']}",
        "limits": f"{job['max_new_tokens']} new tokens, stop strings {job['stop']!r}",
        "versions": ", ".join(f"{name} {value}" for name, value in versions.items() if value),
        "commit": _commit(shard["git"]),
        "host": str(place.get("host", "unknown")),
        "GPU": ", ".join(place.get("gpus") or ()) or "none",
        "date": shard["finished"][:10],
    }


def _model(model: Mapping[str, str | None]) -> str:
    exact = model["revision"] or (f"content {model['content']}" if model["content"] else None)
    return f"{model['path']} ({exact or 'not pinned'})"


def _commit(git: Mapping[str, Any]) -> str:
    return f"{git['commit'] or 'unknown'}{' with changes' if git['dirty'] else ''}"


def _counts(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{run} ({count})" for run, count in rows.items())
