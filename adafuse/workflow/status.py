"""How far a results folder is: what is done, under way, wrong, or of another configuration."""

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from adafuse.errors import UserError
from adafuse.parquet import read_metadata
from adafuse.workflow.journal import Journal, journal_path, writer
from adafuse.workflow.plan import Plan
from adafuse.workflow.stamps import is_fresh


def stored_digest(path: Path) -> str | None:
    """Return the digest of the job that wrote a trace; None if the file is torn or foreign."""
    try:
        digest = read_metadata(path).get("digest")
    except UserError:
        return None
    return None if digest is None else str(digest)


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


def failed_steps(plan: Plan) -> list[dict[str, str]]:
    """Return the errors and logs of the other steps whose logs end with an error."""
    logs = plan.layout.logs
    paths = [path for path in sorted(logs.rglob("*.log")) if logs / "decode" not in path.parents]
    return [{"error": error, "log": str(log)} for log in paths if (error := last_error(log))]


def decoded_with(plan: Plan) -> Counter[str]:
    """Return how many shards of the merged traces were decoded with which versions."""
    found: Counter[str] = Counter()
    for cell in plan.all_cells():
        with suppress(UserError):
            for shard in read_metadata(plan.layout.trace(*cell)).get("shards", []):
                versions = shard["versions"].items()
                found[", ".join(f"{name} {version}" for name, version in versions if version)] += 1
    return found


def last_error(log: Path) -> str | None:
    """Return the last line of a log if it is an error."""
    if not log.is_file():
        return None
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    last = next(filter(None, reversed(lines)), "")
    return last if _ERROR.match(last) else None


def shard_status(plan: Plan, benchmark: str, run: str, shard: int) -> ShardStatus:
    of = len(plan.shard(benchmark, shard))
    out = plan.layout.shard_trace(benchmark, run, shard)
    log = plan.layout.log("decode", benchmark, run, str(shard))
    path = journal_path(out)
    journal = Journal(path, plan.row_digests(benchmark, run, shard) if path.is_file() else {})
    merged = plan.layout.trace(benchmark, run)
    if merged.is_file() and is_fresh(merged, plan.key("merge", benchmark=benchmark, run=run)):
        found: tuple[State, str | None] = "done", None
    else:
        found = _state(out, plan.digest(benchmark, run, shard), journal, log)
    state, detail = found
    rows = of if state == "done" else len(journal.rows)
    failed_in = str(log) if state == "failed" else None
    return ShardStatus(benchmark, run, shard, state, rows, of, detail, failed_in)


def _state(out: Path, digest: str, journal: Journal, log: Path) -> tuple[State, str | None]:
    found = stored_digest(out) if out.is_file() else None
    if found == digest:
        return "done", None
    if process := writer(journal.path):
        return "running", process
    if out.is_file():
        return "stale", "of another configuration" if found else "torn or foreign"
    if error := last_error(log):
        return "failed", error
    return ("stopped" if journal.rows else "waiting"), None
