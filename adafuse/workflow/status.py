"""How far a results folder is: what is done, under way, wrong, or of another configuration."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from adafuse.errors import UserError
from adafuse.storage.journal import Journal, journal_path, writer
from adafuse.storage.parquet import read_metadata, read_rows
from adafuse.version import versions
from adafuse.workflow.forecast import Measured, cards_of, least_of
from adafuse.workflow.jobs import started_servers
from adafuse.workflow.plan import Plan
from adafuse.workflow.reasons import rerun_reason, trace_of
from adafuse.workflow.serving import Started
from adafuse.workflow.stamps import is_ready, is_unchanged
from adafuse.workflow.steps import STEPS, Job

State = Literal["done", "running", "stopped", "failed", "stale", "waiting"]

_ERROR = re.compile(r"error: |\S+ \S+ ERROR |[A-Za-z_.]*(Error|Exception|Interrupt)\b|Aborted")
_INTERRUPTED = re.compile(r"\S+ \S+ INFO interrupted ")
"""What `adafuse step ended` writes of a job that SIGINT or SIGTERM ended."""
_TAIL = 1 << 16
_TIME = r"^(?P<time>\S+ [^,\s]+)(?:,\d+)? INFO "
_BEGUN = re.compile(rf"{_TIME}.*: (?P<left>\d+) of \d+ rows to do", re.MULTILINE)
_ROW = re.compile(rf"{_TIME}(?P<done>\d+) of \d+: ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One decode job, and how many of its `of` rows there are.

    `stale` has a trace of another configuration; `running` and `stopped` have a journal, with and
    without a process that writes it. `detail` is the process or the error, `log` where that stands;
    of one that is done, which of its rows failed.
    """

    benchmark: str
    run: str
    shard: int
    state: State
    rows: int
    of: int
    detail: str | None = None
    log: str | None = None


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A server that the workflow starts: where it runs, or why it ended and where that stands."""

    model: str
    state: Literal["waiting", "starting", "running", "stopped", "failed"]
    url: str | None = None
    detail: str | None = None
    log: str | None = None


def server_statuses(
    plan: Plan, jobs: Mapping[str, dict[str, str]], shards: Iterable[ShardStatus]
) -> list[ServerStatus]:
    """Return the servers that there are, and those that decode jobs which are left need."""
    config, left = plan.config, [shard for shard in shards if shard.state != "done"]
    needed = {m for s in left for m in started_servers(config, s.benchmark, s.run)}
    found = (
        _server(plan, jobs, model, model in needed) for (model,) in STEPS["server"].cells(config)
    )
    return [each for each in found if each is not None]


def _server(
    plan: Plan, jobs: Mapping[str, dict[str, str]], model: str, needed: bool
) -> ServerStatus | None:
    file, log = plan.layout.server(model), str(plan.layout.log("server", model))
    now, kept = Started.read(file), writer(file) is not None
    if file.exists() and now.ended is not None:
        return ServerStatus(model, "failed", detail=now.ended, log=log)
    if file.exists() and now.url is not None:
        return ServerStatus(model, "running" if kept else "stopped", now.url, log=log)
    if kept:
        return ServerStatus(model, "starting", log=log)
    if needed and (job := jobs.get(str(file))):
        error = last_error(Path(log)) or job["error"]
        return ServerStatus(model, "failed", detail=error.removeprefix("error: "), log=log)
    return ServerStatus(model, "waiting") if needed else None


def failed_steps(plan: Plan, jobs: Mapping[str, dict[str, str]]) -> list[dict[str, str]]:
    """Return the errors and logs of the failed steps other than decoding and servers."""
    logs = plan.layout.logs
    others = {logs / "decode", logs / "server"}
    paths = [path for path in sorted(logs.rglob("*.log")) if others.isdisjoint(path.parents)]
    told = {str(log): error for log in paths if (error := last_error(log))}
    made = {path.absolute() for job in plan.all_jobs() for path in plan.outputs(job)}
    for output, job in jobs.items():
        here = Path(output).absolute() in made  # and not of results in a folder within these
        if here and job["rule"] not in ("decode", "server") and not Path(output).exists():
            told.setdefault(job["log"], job["error"])
    return [{"error": error, "log": log} for log, error in sorted(told.items())]


def decoded_with(plan: Plan) -> Counter[str]:
    """Return how many shards of the merged traces were decoded with which versions."""
    found, names = Counter[str](), versions()
    for cell in plan.all_cells():
        with suppress(UserError):
            shards = read_metadata(plan.layout.trace(*cell)).get("shards", [])
            sources = [source for shard in shards for source in shard.get("reused_from", [])]
            for shard in (*shards, *(each for source in sources for each in source["decoded"])):
                told = shard["versions"] or {}  # rows may be from a file that does not say
                known = [f"{name} {told[name]}" for name in names if told.get(name)]
                found.update([", ".join(known)] if known else [])  # not of plug-ins
    return found


@dataclass(frozen=True, slots=True)
class Progress:
    """The rows that the jobs which run decode in a minute, and GPU hours of all attempts so far.

    `hours_left` is until all rows are decoded by as many jobs as run now, one if none does; None
    before anything was measured.
    """

    running: int
    rows_per_minute: float
    hours_left: float | None
    gpu_hours: float


def progress(plan: Plan, shards: Iterable[ShardStatus]) -> Progress:
    """Return how fast decoding is, by the logs of the jobs that run and by what was measured."""
    measured, running, rate = Measured(plan), 0, 0.0
    hours, seconds = measured.gpu_hours, list[float | None]()
    for shard in shards:
        cell = shard.benchmark, shard.run
        hours += _gpu_hours_before(plan, shard)
        if shard.state == "done":
            continue
        cards, left = plan.resources(*cell, shard.shard).gpu, shard.of - shard.rows
        seconds.append(measured.seconds(cell, left, least_of(plan, cell, left, cards), cards))
        if shard.state == "running" and (seen := _seen(plan, shard)) is not None:
            running += 1
            hours += cards * (datetime.now(UTC) - seen.begun).total_seconds() / 3600
            rate += 60 * seen.rows / max(1.0, (seen.last - seen.begun).total_seconds())
    known = [each for each in seconds if each is not None]
    took = sum(known) / 3600 / max(1, running) if len(known) == len(seconds) else None
    return Progress(running, rate, took, hours)


class _Seen(NamedTuple):
    """What a log says of an attempt: when it began and its last row ended, and how many did."""

    begun: datetime
    last: datetime
    rows: int
    done: int


def _gpu_hours_before(plan: Plan, shard: ShardStatus) -> float:
    """Return the GPU hours of attempts that neither wrote the trace of a shard nor run now."""
    cards, attempts = plan.resources(shard.benchmark, shard.run, shard.shard).gpu, list[_Seen]()
    if shard.state != "done":
        attempts = _attempts(plan, shard)[: -1 if shard.state == "running" else None]
    elif trace := trace_of(plan, shard.benchmark, shard.run, shard.shard):
        cards = cards_of(plan, (shard.benchmark, shard.run), shard.shard, trace)
        attempts = _attempts(plan, shard)[:-1] if trace.get("resumed") else []
    return cards * sum((each.last - each.begun).total_seconds() for each in attempts) / 3600


def _seen(plan: Plan, shard: ShardStatus) -> _Seen | None:
    return next(reversed(_attempts(plan, shard)), None)


def _attempts(plan: Plan, shard: ShardStatus) -> list[_Seen]:
    log = plan.layout.log("decode", shard.benchmark, shard.run, str(shard.shard))
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    starts, found = [*_BEGUN.finditer(text)], list[_Seen]()
    ends = [*(start.start() for start in starts), len(text)][1:]
    for start, end in zip(starts, ends, strict=True):
        begun = _time(start)
        rows = [*_ROW.finditer(text, start.end(), end)]
        last = _time(rows[-1]) if rows else begun
        done = int(rows[-1]["done"]) if rows else shard.of - int(start["left"])
        found.append(_Seen(begun, last, len(rows), done))
    return found


def _time(line: re.Match[str]) -> datetime:
    """Return the time of a line of a log; older logs do not name their time zone."""
    return datetime.fromisoformat(line["time"]).astimezone()


def _failed_rows(plan: Plan, benchmark: str, run: str, shard: int) -> str | None:
    """Return how many rows of a shard that is done failed, and what the first one says."""
    if not (trace_of(plan, benchmark, run, shard) or {}).get("failed"):
        return None
    own, merged = plan.layout.shard_trace(benchmark, run, shard), plan.layout.trace(benchmark, run)
    rows = read_rows(own if own.is_file() else merged, ["id", "shard", "error", "stop_reason"])
    failed = [row for row in rows if row["stop_reason"] == "error" and row["shard"] == shard]
    name, error = failed[0]["id"], " ".join((failed[0]["error"] or "no reason").split())
    said = re.split(r"(?<=[.!?]) ", error)[0]
    return f"{len(failed)} failed, the first, {name!r}, with: {said}"


def last_error(log: Path) -> str | None:
    """Return the last line of a log if it is an error."""
    last = _last_line(log)
    return last if _ERROR.match(last) else None


def _last_line(log: Path) -> str:
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        lines = [line.strip() for line in file.read().decode(errors="replace").split("\n")]
    return next(filter(None, reversed(lines)), "")


def shard_status(
    plan: Plan, jobs: Mapping[str, dict[str, str]], benchmark: str, run: str, shard: int
) -> ShardStatus:
    """Return how far a decode job is; `jobs` are the failed ones."""
    of = len(plan.shard(benchmark, shard))
    out = plan.layout.shard_trace(benchmark, run, shard)
    log = plan.layout.log("decode", benchmark, run, str(shard))
    path = journal_path(out)
    journal = Journal(path, plan.row_digests(benchmark, run, shard) if path.is_file() else {})
    merged = plan.layout.trace(benchmark, run)
    if merged.is_file() and plan.is_fresh(Job.of("merge", benchmark, run)):
        found: tuple[State, str | None] = "done", None
    else:
        found = _state(plan, out, (benchmark, run, shard), journal, log)
    state, detail = found
    failed_in = str(log) if state == "failed" else None
    job = None if _INTERRUPTED.match(_last_line(log)) else jobs.get(str(out))
    if state in ("stopped", "waiting") and job:
        state, detail, failed_in = "failed", job["error"], job["log"]
    rows = of if state == "done" else len(journal.rows)
    if state == "done":
        detail = _failed_rows(plan, benchmark, run, shard)
    status = ShardStatus(benchmark, run, shard, state, rows, of, detail, failed_in)
    if state == "running" and (seen := _seen(plan, status)) is not None:
        return replace(status, rows=max(rows, seen.done))  # with rows that were decoded before
    return status


def _wrong(plan: Plan, trace: Path, benchmark: str, run: str, shard: int) -> str | None:
    """Return why a shard's trace is decoded again; None if it is not."""
    digest, found = plan.digest(benchmark, run, shard), None
    with suppress(UserError):
        found = read_metadata(trace).get("digest")
    if found == digest and not is_unchanged(trace):
        return "changed, damaged or copied from elsewhere"
    if found == digest:
        return "more failed rows than allowed" if plan.failed_too_often(trace) else None
    return rerun_reason(plan, benchmark, run, shard) if found else "torn or foreign"


def _state(
    plan: Plan, out: Path, cell: tuple[str, str, int], journal: Journal, log: Path
) -> tuple[State, str | None]:
    wrong = _wrong(plan, out, *cell) if out.is_file() else ""
    if wrong is None or is_ready(out, plan.digest(*cell)):
        return "done", None
    if process := writer(journal.path):
        return "running", process
    if wrong:
        return "stale", wrong
    if error := last_error(log):
        return "failed", error
    return ("stopped" if journal.rows else "waiting"), None
