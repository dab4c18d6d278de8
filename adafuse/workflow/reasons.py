"""Why jobs run again whose outputs exist, in words."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from adafuse.benchmarks.shards import PreparedRow, read_prepared
from adafuse.errors import UserError
from adafuse.storage.parquet import read_metadata, read_rows
from adafuse.version import ENGINE_VERSION
from adafuse.workflow.plan import Plan
from adafuse.workflow.stamps import is_unchanged
from adafuse.workflow.steps import Job

_NO_RESULT = ("benchmark", "run", "devices", "allow_pickle", "timed", "fitted_on")
"""Parts of a job's record that no text depends on."""

_UNTOLD = "what no trace tells was changed: a question, a gate, or answers that it starts from"

_UNKNOWN = "its settings or what it reads were changed"


def reason_to_repeat(plan: Plan, job: Job) -> str:
    """Return in words why a job runs again: what was changed since its outputs were made.

    It is that of the first jobs that it depends on, if they run again, too.
    """
    present = [path for path in plan.outputs(job) if path.exists()]
    if odd := [path for path in present if not is_unchanged(path)]:
        return f"{str(odd[0])!r} was changed, damaged or copied from elsewhere"
    if job.step == "decode":
        benchmark, run, shard = job.values
        return rerun_reason(plan, benchmark, run, int(shard))
    if job.step in ("prepare", "shard"):
        old = [row for path in plan.outputs(job) for row in _rows_of(path)]
        rows = plan.prepared(job.values[0]).rows
        new = [row for row in rows if job.step == "prepare" or row.shard == int(job.values[1])]
        return "; ".join(_compared(old, new)) or _UNKNOWN
    before = [each for each in plan.reads(job) if not plan.is_fresh(each)]
    return "; ".join(dict.fromkeys(reason_to_repeat(plan, each) for each in before)) or _UNKNOWN


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
    yield from _unlike(before, now)


def _compared(old: Sequence[PreparedRow], new: Sequence[PreparedRow]) -> Iterable[str]:
    """Yield what differs between the rows of a file and those that are planned."""
    gold = {row.id: row.answers for row in old}
    if other := [row.id for row in new if row.answers != gold.get(row.id, row.answers)]:
        more = f" and of {len(other) - 1} more rows" * (len(other) > 1)
        yield f"gold answer of {other[0]!r}{more}"
    before, now = ({row.id: row.prompt for row in rows} for rows in (old, new))
    yield from _unlike(before, now)


def _unlike(before: Mapping[str, str], now: Mapping[str, str]) -> Iterable[str]:
    """Yield how many prompts by id were changed, are new, or gone."""
    for words, of, ids in (
        ("changed", now, [i for i in now if i in before and now[i] != before[i]]),
        ("new", now, [i for i in now if i not in before]),
        ("gone", before, [i for i in before if i not in now]),
    ):
        if ids:
            yield f"{len(ids)} of {len(of)} rows {words}, first {ids[0]!r}"


def _rows_of(path: Path) -> tuple[PreparedRow, ...]:
    """Read the rows of a file as far as it has some."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        return read_prepared(path)
    return ()
