"""A pilot: some rows of a benchmark decoded with a run, to measure what all of them take.

Its rows are kept under the traces, from where the jobs take them.
"""

import json
import os
import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adafuse.benchmarks.shards import PreparedRow, write_shard
from adafuse.errors import UserError
from adafuse.records.result import Result
from adafuse.startup import fast_imports
from adafuse.storage.files import write_text
from adafuse.storage.journal import journal_path
from adafuse.storage.parquet import read_metadata, read_rows
from adafuse.storage.provenance import this_machine
from adafuse.workflow.decode import Answers, decode_shard, ensemble_decoder
from adafuse.workflow.digest import decode_digest, shard_digest
from adafuse.workflow.jobs import DecodeJob, answer_runs
from adafuse.workflow.plan import Cell, Plan
from adafuse.workflow.stamps import write_stamp
from adafuse.workflow.steps import gate_jobs
from adafuse.workflow.together import Models

if TYPE_CHECKING:
    from adafuse.ensemble import Ensemble


@dataclass(frozen=True, slots=True)
class Span:
    """A row from its admission to its end, in seconds, and its forward passes of all models."""

    begun: float
    ended: float
    forwards: int


@dataclass(frozen=True, slots=True)
class Pilot:
    """What decoding the rows with these `digests` took: seconds `once`, and for each `row`.

    Unless batches were `full` for some time, `row` is longer than in a job. `memory_mb` and
    `gpu_mb` are the most memory of the process and of its GPUs, `row_bytes` the trace of a row.
    """

    digests: tuple[str, ...]
    once: float
    row: float
    full: bool
    memory_mb: float
    gpu_mb: float
    row_bytes: float
    host: str
    gpus: tuple[str, ...]

    def seconds(self, rows: int) -> float:
        """Return the seconds of a job with so many rows to decode."""
        return self.once + self.row * rows if rows else 0.0


def read_pilot(plan: Plan, cell: Cell) -> Pilot | None:
    """Return the pilot of a cell; None without one, or of other rows or settings than planned."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        found = json.loads(_measured(plan, cell).read_text(encoding="utf-8"))
        pilot = Pilot(**found | {name: tuple(found[name]) for name in ("digests", "gpus")})
        planned = {d for n in plan.shards(cell[0]) for d in plan.row_digests(*cell, n).values()}
        return None if planned.isdisjoint(pilot.digests) else pilot
    return None


def take_pilots(
    plan: Plan, cells: Iterable[Cell], size: int
) -> Iterator[tuple[Cell, Pilot | UserError]]:
    """Decode `size` rows of each cell, spread over its benchmark; yield what that took.

    They are at least two batches, so that one is full. Answers that a run starts from are decoded,
    too. Cells of the same models follow each other, so that these are loaded once.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # as the jobs have it; torch reads it when it is imported
    wanted = {(b, each) for b, run in cells for each in (run, *answer_runs(plan.config, run))}
    models = _Models()
    for cell in sorted(wanted, key=lambda each: _order(plan, each)):
        try:
            yield cell, _take(plan, cell, size, models)
        except UserError as error:
            yield cell, error


def _order(plan: Plan, cell: Cell) -> tuple[Any, ...]:
    models = plan.decode_job(*cell).models
    return bool(answer_runs(plan.config, cell[1])), [str(model) for model in models], *cell


def _take(plan: Plan, cell: Cell, size: int, models: "_Models") -> Pilot:
    benchmark, run = cell
    job, batch = _ready(plan, cell), plan.config.batch_size(benchmark)
    wanted = size if batch == "auto" else max(size, 2 * batch)
    rows = _spread(plan.prepared(benchmark).rows, wanted)
    out = plan.layout.pilot(*cell)
    answers = [plan.layout.pilot(benchmark, each) for each in answer_runs(plan.config, run)]
    found = [str(read_metadata(each).get("digest")) for each in answers]
    digest, file = decode_digest(job, shard_digest(rows), found), out.with_suffix(".jsonl")
    write_shard(file, rows)
    journal_path(out).unlink(missing_ok=True)
    _forget_peaks()
    ensemble = models.of(job)
    clock = _Clock(ensemble)
    decode_shard(
        job,
        0,
        file,
        out,
        digest=digest,
        decoder=clock.decode,
        served=ensemble.served_by if ensemble else None,
        answers=answers,
    )
    write_stamp(out, digest)
    journal_path(out).unlink()
    decoded = read_rows(out, ["digest", "error", "stop_reason"])
    good = tuple(each["digest"] for each in decoded if each["stop_reason"] != "error")
    if not good:
        raise UserError(f"all rows failed, the first with: {decoded[0]['error']}")
    once, row, full = cost(clock.spans)
    once += models.seconds(ensemble, min(span.begun for span in clock.spans))
    place = this_machine()
    pilot = Pilot(
        good,
        once,
        row,
        full or len(rows) == len(plan.prepared(benchmark).rows),
        *_peaks(),
        out.stat().st_size / len(rows),
        place["host"],
        tuple(place["gpus"]),
    )
    write_text(_measured(plan, cell), json.dumps(asdict(pilot)) + "\n")
    return pilot


def _ready(plan: Plan, cell: Cell) -> DecodeJob:
    """Return the job of a cell; refuse one that this machine cannot decode now, or only slowly."""
    import torch

    job = plan.decode_job(*cell)
    if plan.resources(*cell, 0).gpu and not torch.cuda.is_available():
        raise UserError("its jobs use a GPU, which this machine does not have")
    if any(job.serve):
        raise UserError("its servers are started by the workflow")
    gates = gate_jobs(plan.config, [cell])
    if not all(plan.is_done(each) for each in gates):
        raise UserError("its gate is not fitted yet")
    return job.with_gate(next(iter(plan.files(gates)), None))


def _spread(rows: Sequence[PreparedRow], size: int) -> list[PreparedRow]:
    if not (count := min(size, len(rows))):
        raise UserError("its benchmark is not on this machine")
    return [rows[number * len(rows) // count] for number in range(count)]


def _measured(plan: Plan, cell: Cell) -> Path:
    return plan.layout.pilot(*cell).with_suffix(".json")


class _Models(Models):
    """The models of the last job, and what having them takes in a process of its own."""

    def __init__(self) -> None:
        super().__init__()
        before = time.perf_counter()
        with fast_imports():
            import adafuse.ensemble  # noqa: F401
        self._imports = time.perf_counter() - before
        self._first: dict[object, float] = {}

    def seconds(self, ensemble: "Ensemble | None", start: float) -> float:
        """Return the seconds that a job needs besides those since it began to decode.

        Models are checked before their first row, so a later job lacks what the first one's `start`
        was longer.
        """
        if ensemble is None:
            return self._imports
        first = self._first.setdefault(self.key, start)
        return self._imports + self.loading + max(0.0, first - start)


@dataclass
class _Clock:
    """Decodes, and notes when the rows were admitted and ended."""

    ensemble: "Ensemble | None"
    spans: list[Span] = field(default_factory=list)

    def decode(
        self, job: DecodeJob, rows: Sequence[PreparedRow], answers: Answers | None
    ) -> Iterator[tuple[int, Result]]:
        started = time.perf_counter()
        for index, result in ensemble_decoder(job, rows, answers, self.ensemble):
            before = sum(each.seconds for each in answers[index]) if answers else 0.0
            ended = time.perf_counter() - started
            begun = ended - (result.seconds - before)  # which count those of the answers, too
            self.spans.append(Span(begun, ended, sum(result.forwards)))
            yield index, result


def cost(spans: Sequence[Span]) -> tuple[float, float, bool]:
    """Return the seconds that decoding takes once, those of each row, and if batches were full.

    A batch is full until the last row is admitted. Rows that ended by then tell how long a forward
    pass takes in a full batch; all rows, how many there are in one. Where none had ended, or
    nothing passes a model, the seconds of a row are those of all, divided.
    """
    start, end = min(span.begun for span in spans), max(span.ended for span in spans)
    full = max(span.begun for span in spans)
    early = [span for span in spans if span.ended <= full]
    passes = sum(span.forwards for span in early)
    if not passes:
        return start, (end - start) / len(spans), bool(early)
    size = max(sum(o.begun <= s.begun < o.ended for o in spans) for s in spans)
    pace = sum(span.ended - span.begun for span in early) / passes / size
    row = pace * sum(span.forwards for span in spans) / len(spans)
    return max(start, end - row * len(spans)), row, True


def _forget_peaks() -> None:
    import torch

    with suppress(OSError):  # of Linux; elsewhere, memory is the most since the process began
        Path("/proc/self/clear_refs").write_text("5")
    for card in range(torch.cuda.device_count()):
        torch.cuda.reset_peak_memory_stats(card)


def _peaks() -> tuple[float, float]:
    """Return the most megabytes that the process, and any of its GPUs, had in use."""
    import torch

    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    cards = range(torch.cuda.device_count())
    most = [torch.cuda.max_memory_reserved(card) for card in cards]
    return kilobytes / 1000, max(most, default=0) / 1e6
