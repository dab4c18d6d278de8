"""What the jobs that are left would take, and why rows are decoded again."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from adafuse.errors import UserError
from adafuse.storage.journal import Journal, journal_path
from adafuse.storage.parquet import read_metadata, read_rows
from adafuse.version import ENGINE_VERSION
from adafuse.workflow.jobs import fit_job, least_seconds, loaded, model_bytes
from adafuse.workflow.plan import TRIED, Plan
from adafuse.workflow.steps import Job

Cell = tuple[str, str]
_NO_RESULT = ("benchmark", "run", "devices", "allow_pickle", "timed", "fitted_on")
"""Parts of a job's record that no text depends on."""


_UNTOLD = "what no trace tells was changed: a question, a gate, or answers that it starts from"


@dataclass(frozen=True, slots=True)
class Forecast:
    """A job that decodes: what it asks a cluster for, and its hours.

    `low` is decoding without any margin, `high` the time that is asked for. `likely` goes by jobs
    that were measured, and is None before there are any. `rows` are those that are left to decode.
    """

    step: str
    benchmark: str
    run: str
    shard: int | None
    rows: int
    gpus: int
    mem_mb: int
    low: float
    likely: float | None
    high: float
    why: str


class Measured:
    """How long jobs that have ended took, in terms of the least seconds that they can take."""

    def __init__(self, plan: Plan) -> None:
        self.ratios: dict[tuple[str, str, bool], list[float]] = {}
        self.bytes: list[float] = []
        for cell in plan.all_cells():
            for shard in plan.shards(cell[0]):
                self._read(plan, cell, shard)

    def _read(self, plan: Plan, cell: Cell, shard: int) -> None:
        found = trace_of(plan, *cell, shard) or {}
        if not {"rows", "place", "started", "finished"} <= found.keys():
            return  # not from here
        rows, place = found["rows"], found["place"]
        if not rows or found.get("resumed") or found.get("reused"):
            return
        started, ended = (datetime.fromisoformat(found[name]) for name in ("started", "finished"))
        cards = len(place["gpus"])
        if (least := _least(plan, cell, rows, cards)) > 0:
            key = (*cell, cards > 0)
            self.ratios.setdefault(key, []).append((ended - started).total_seconds() / least)
        trace = plan.layout.shard_trace(*cell, shard)
        if trace.is_file():
            self.bytes.append(trace.stat().st_size / rows)

    def ratio(self, benchmark: str, run: str, cards: int) -> float | None:
        """Return that of the cell itself, else the median of the run's, else of all."""
        on_gpu = cards > 0
        own = self.ratios.get((benchmark, run, on_gpu))
        of_run = [r for key, each in self.ratios.items() for r in each if key[1:] == (run, on_gpu)]
        others = [r for key, each in self.ratios.items() for r in each if key[2] == on_gpu]
        best = own or of_run or others
        return median(best) if best else None


def forecast(plan: Plan, job: Job, asked: Mapping[str, Any], measured: Measured) -> Forecast:
    """Return what a `decode` or `fit` job takes; `asked` are its resources."""
    benchmark, run = job.values[:2]
    cell, cards, shard = (benchmark, run), int(asked.get("gpu", 0)), None
    if job.step == "decode":
        shard = int(job.values[2])
        rows, why = _left(plan, benchmark, run, shard)
    else:
        rows, why = TRIED * len(plan.prepared(benchmark).rows), "a gate is fitted"
    least = _least(plan, cell, rows, cards, fits=job.step == "fit")
    ratio = measured.ratio(benchmark, run, cards)
    likely = None if ratio is None else ratio * least / 3600
    high = int(asked["runtime"]) / 60
    mem_mb = int(asked["mem_mb"])
    return Forecast(
        job.step, benchmark, run, shard, rows, cards, mem_mb, least / 3600, likely, high, why
    )


def _least(plan: Plan, cell: Cell, rows: int, cards: int, *, fits: bool = False) -> float:
    job = fit_job(plan.config, *cell) if fits else plan.decode_job(*cell)
    here = [model_bytes(model, quantized=False) for model in loaded(job)]
    served = [model_bytes(model) for model in job.models if model.server is not None]
    return least_seconds(job, here, rows, cards) + least_seconds(job, served, rows, 1)


def _left(plan: Plan, benchmark: str, run: str, shard: int) -> tuple[int, str]:
    """Return how many rows of a shard are left to decode, and why they are."""
    rows = plan.shard(benchmark, shard)
    path = journal_path(plan.layout.shard_trace(benchmark, run, shard))
    digests = plan.row_digests(benchmark, run, shard)
    known = len(Journal(path, digests).rows) if path.is_file() else 0
    why = rerun_reason(plan, benchmark, run, shard)
    if known:
        why += f"; {known} of {len(rows)} rows are decoded already"
    return len(rows) - known, why


def trace_of(plan: Plan, benchmark: str, run: str, shard: int) -> dict[str, Any] | None:
    """Return the metadata of a shard's trace, which the merged one has, too; None without one."""
    with suppress(UserError, OSError):
        if found := read_metadata(plan.layout.shard_trace(benchmark, run, shard)):
            return found
    with suppress(UserError, OSError):
        shards = read_metadata(plan.layout.trace(benchmark, run)).get("shards", [])
        return next((each for each in shards if each.get("shard") == shard), None)
    return None


def rerun_reason(plan: Plan, benchmark: str, run: str, shard: int) -> str:
    """Return in words why a shard is decoded: what is new, or was changed since its trace."""
    if (trace := trace_of(plan, benchmark, run, shard)) is None:
        return "not decoded yet"
    if trace.get("digest") == plan.digest(benchmark, run, shard):
        return "its trace is gone, or too many of its rows failed"
    if (before := trace.get("job")) is None:
        return "of another configuration"
    now = json.loads(json.dumps(plan.decode_job(benchmark, run).record()))  # as a trace has it
    changes = [*_changes(before, now)]
    engine = trace.get("versions", {}).get("engine")
    if engine != ENGINE_VERSION:
        changes.append(f"engine version {engine} -> {ENGINE_VERSION}")
    changes += _changed_rows(plan, benchmark, run, shard)
    return "; ".join(changes) or _UNTOLD


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterable[str]:
    for name in sorted({*before, *now} - {*_NO_RESULT}):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if name == "options":
            for each in _unequal(old, new):
                yield f"option {each} {(old or {}).get(each)} -> {(new or {}).get(each)}"
        elif name == "models":
            yield from _changed_models(old or [], new or [])
        elif name == "checkpoints":
            yield from (f"model of option {each} was changed" for each in _unequal(old, new))
        elif name == "plugins":
            yield "code of a plug-in was changed"
        else:
            yield f"{name} {old} -> {new}"


def _unequal(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[str]:
    before, now = old or {}, new or {}
    return sorted(each for each in {*before, *now} if before.get(each) != now.get(each))


def _changed_models(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterable[str]:
    if len(old) != len(new):
        yield f"models {[m['path'] for m in old]} -> {[m['path'] for m in new]}"
        return
    for before, now in zip(old, new, strict=True):
        if before["path"] != now["path"]:
            yield f"model {before['path']} -> {now['path']}"
        elif before != now:
            yield f"model {now['path']} has other files"


def _changed_rows(plan: Plan, benchmark: str, run: str, shard: int) -> Iterable[str]:
    """Yield how many prompts differ from those in a shard's trace, with the first one's id."""
    for path in (plan.layout.shard_trace(benchmark, run, shard), plan.layout.trace(benchmark, run)):
        with suppress(UserError, OSError):
            kept = read_rows(path, columns=["id", "shard", "prompt_sha256"])
            break
    else:
        return
    before = {row["id"]: row["prompt_sha256"] for row in kept if row["shard"] == shard}
    now = {row.id: row.prompt_sha256 for row in plan.shard(benchmark, shard)}
    for words, ids in (
        ("changed", [i for i in now if i in before and now[i] != before[i]]),
        ("new", [i for i in now if i not in before]),
        ("gone", [i for i in before if i not in now]),
    ):
        if ids:
            yield f"{len(ids)} of {len(now)} rows {words}, first {ids[0]!r}"
