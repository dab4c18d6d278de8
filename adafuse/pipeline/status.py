"""How far a results folder is: of every shard of every run what is done, under way, or wrong."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from adafuse.pipeline.journal import Journal, journal_path
from adafuse.pipeline.lock import writer
from adafuse.pipeline.outdated import stored_digest
from adafuse.pipeline.plan import Plan
from adafuse.pipeline.wanted import Cell

State = Literal["done", "running", "stopped", "failed", "stale", "waiting"]

_ERROR = re.compile(r"error: |\S+ \S+ ERROR |[A-Za-z_.]*(Error|Exception|Interrupt)\b|Aborted")
_TAIL = 1 << 16


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One decode job, and how many of its `of` rows there are.

    `stale` has a trace of another configuration; `running` and `stopped` have a journal, with and
    without a process that writes it. `detail` is the process or the error, `log` where that stands.
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
class FailedStep:
    """Another step than decoding whose log ends with an error."""

    error: str
    log: str


def shard_statuses(plan: Plan, cells: Iterable[Cell]) -> list[ShardStatus]:
    """Return the state of every decode job of some benchmarks and runs, in their order."""
    return [
        _status(plan, benchmark, run, shard)
        for benchmark, run in cells
        for shard in plan.shards(benchmark)
    ]


def failed_steps(plan: Plan) -> list[FailedStep]:
    """Return the other steps that failed, by their logs."""
    logs = Path(plan.config.results, "logs")
    paths = [path for path in sorted(logs.rglob("*.log")) if logs / "decode" not in path.parents]
    found = ((path, last_error(path)) for path in paths)
    return [FailedStep(error, str(path)) for path, error in found if error is not None]


def last_error(log: Path) -> str | None:
    """Return the last line of a log if it tells an error."""
    if not log.is_file():
        return None
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    last = next(filter(None, reversed(lines)), "")
    return last if _ERROR.match(last) else None


def _status(plan: Plan, benchmark: str, run: str, shard: int) -> ShardStatus:
    ids = [row.id for row in plan.prepared(benchmark).shard(shard)]
    out = Path(plan.config.results, "traces", benchmark, run, f"{shard}.parquet")
    log = Path(plan.config.results, "logs", "decode", benchmark, run, f"{shard}.log")
    digest = plan.digest(benchmark, run, shard)
    journal = Journal(journal_path(out), digest, ids)
    state, detail = _state(out, digest, journal, log)
    rows = len(ids) if state == "done" else len(journal.rows)
    told = str(log) if state == "failed" else None
    return ShardStatus(benchmark, run, shard, state, rows, len(ids), detail, told)


def _state(out: Path, digest: str, journal: Journal, log: Path) -> tuple[State, str | None]:
    stored = stored_digest(out) if out.is_file() else None
    if stored == digest:
        return "done", None
    if process := writer(journal.path):
        return "running", process
    if out.is_file():
        return "stale", "of another configuration" if stored else "torn or foreign"
    if error := last_error(log):
        return "failed", error
    return ("stopped" if journal.rows else "waiting"), None


def by_run(statuses: list[ShardStatus]) -> Iterator[list[ShardStatus]]:
    """Group the shards of each benchmark and run, which stand together."""
    group: list[ShardStatus] = []
    for each in statuses:
        if group and (group[0].benchmark, group[0].run) != (each.benchmark, each.run):
            yield group
            group = []
        group.append(each)
    if group:
        yield group
