"""What the jobs that are left would take."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from statistics import fmean, median
from typing import Any

from adafuse.storage.journal import Journal, journal_path
from adafuse.workflow.decode import kept_digests
from adafuse.workflow.jobs import fit_job, least_seconds, loaded, model_bytes
from adafuse.workflow.pilot import Pilot, read_pilot
from adafuse.workflow.plan import TRIED, Cell, Plan
from adafuse.workflow.reasons import rerun_reason, trace_of
from adafuse.workflow.steps import Job


@dataclass(frozen=True, slots=True)
class Forecast:
    """A job that decodes: what it asks a cluster for, and its hours.

    `low` is decoding without any margin, or what is likely if that is less, `high` the time that is
    asked for. `likely` goes by jobs and pilots that were measured, and is None before there are
    any; so is `trace_mb`, the size of the rows' traces. `rows` are those that are left to decode.
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
    trace_mb: float | None = None


class Measured:
    """What jobs that have ended took, in terms of the least seconds that they can take, and pilots.

    A pilot on a CPU says nothing of jobs with GPUs; one on a GPU is taken for jobs that ask for
    none, which use what there is. `gpu_hours` are those of all jobs that have ended.
    """

    @cached_property
    def decoded(self) -> Set[str]:
        """The digests of rows that the results folder has, of whichever job."""
        return kept_digests(self._traces)

    def __init__(self, plan: Plan) -> None:
        self.ratios: dict[tuple[str, str, bool], list[float]] = {}
        self.bytes: dict[Cell, list[float]] = {}
        self.pilots: dict[Cell, Pilot] = {}
        self.gpu_hours = 0.0
        self._traces = plan.layout.traces
        for cell in plan.all_cells():
            if (pilot := read_pilot(plan, cell)) is not None:
                self.pilots[cell] = pilot
                self.bytes[cell] = [pilot.row_bytes]
            for shard in plan.shards(cell[0]):
                self._read(plan, cell, shard)
        self._guesses = {key: median(each) for key, each in self.ratios.items()}
        for cell, pilot in self.pilots.items():
            cards = len(pilot.gpus)
            if (least := least_of(plan, cell, 1, cards)) > 0:
                self._guesses.setdefault((*cell, cards > 0), pilot.row / least)

    def _read(self, plan: Plan, cell: Cell, shard: int) -> None:
        found = trace_of(plan, *cell, shard) or {}
        if not {"rows", "place", "started", "finished"} <= found.keys():
            return  # not from here
        rows, cards = found["rows"], cards_of(plan, cell, shard, found)
        started, ended = (datetime.fromisoformat(found[name]) for name in ("started", "finished"))
        seconds = (ended - started).total_seconds()
        self.gpu_hours += cards * seconds / 3600
        decoded = rows - found.get("resumed", 0) - found.get("reused", 0)
        if decoded <= rows / 2:  # and mostly loading
            return
        if (least := least_of(plan, cell, decoded, cards)) > 0:
            key = (*cell, cards > 0)
            self.ratios.setdefault(key, []).append(seconds / least)
        trace = plan.layout.shard_trace(*cell, shard)
        if trace.is_file():
            self.bytes.setdefault(cell, []).append(trace.stat().st_size / rows)

    def knows(self, cell: Cell, cards: int) -> bool:
        """Whether a job or a pilot of a cell itself was measured."""
        return (*cell, cards > 0) in self.ratios or self.pilot(cell, cards) is not None

    def pilot(self, cell: Cell, cards: int) -> Pilot | None:
        """Return the pilot that tells how long the jobs of a cell take."""
        pilot = self.pilots.get(cell)
        return pilot if pilot is not None and (pilot.gpus or not cards) else None

    def seconds(self, cell: Cell, rows: int, least: float, cards: int) -> float | None:
        """Return the seconds of a job: by jobs of its cell, a pilot, the run's other jobs, or all.

        `least` are those that decoding its rows takes at least.
        """
        on_gpu = cards > 0
        if own := self.ratios.get((*cell, on_gpu)):
            return median(own) * least
        if (pilot := self.pilot(cell, cards)) is not None:
            return pilot.seconds(rows)
        others = {key[:2]: each for key, each in self._guesses.items() if key[2] == on_gpu}
        of_run = [each for key, each in others.items() if key[1] == cell[1]]
        best = of_run or [*others.values()]
        return median(best) * least if best else None

    def trace_bytes(self, cell: Cell, rows: int) -> float | None:
        """Return the size of the traces of so many rows, by those of the cell, or else of all."""
        sizes = self.bytes.get(cell) or [each for of in self.bytes.values() for each in of]
        return fmean(sizes) * rows if sizes else None


def cards_of(plan: Plan, cell: Cell, shard: int, trace: Mapping[str, Any]) -> int:
    """Return the GPUs that a job had: of those that it saw, as many as it asks for."""
    seen, asked = len(trace.get("place", {}).get("gpus", [])), plan.resources(*cell, shard).gpu
    return min(seen, asked or seen)


def forecast(plan: Plan, job: Job, asked: Mapping[str, Any], measured: Measured) -> Forecast:
    """Return what a `decode` or `fit` job takes; `asked` are its resources."""
    benchmark, run = job.values[:2]
    cell, cards, shard = (benchmark, run), int(asked.get("gpu", 0)), None
    if job.step == "decode":
        shard = int(job.values[2])
        rows, why = _left(plan, cell, shard, measured.decoded)
    else:
        rows, why = TRIED * len(plan.prepared(benchmark).rows), "a gate is fitted"
    least = least_of(plan, cell, rows, cards, fits=job.step == "fit")
    seconds, size = measured.seconds(cell, rows, least, cards), measured.trace_bytes(cell, rows)
    return Forecast(
        job.step,
        benchmark,
        run,
        shard,
        rows,
        cards,
        mem_mb=int(asked["mem_mb"]),
        low=min(least, least if seconds is None else seconds) / 3600,
        likely=None if seconds is None else seconds / 3600,
        high=int(asked["runtime"]) / 60,
        why=why,
        trace_mb=None if size is None or job.step == "fit" else size / 1e6,
    )


def least_of(plan: Plan, cell: Cell, rows: int, cards: int, *, fits: bool = False) -> float:
    """Return the least seconds of decoding rows of a cell, or of fitting its gate on them."""
    job = fit_job(plan.config, *cell) if fits else plan.decode_job(*cell)
    here = [model_bytes(model, quantized=False) for model in loaded(job)]
    served = [model_bytes(model) for model in job.models if model.server is not None]
    return least_seconds(job, here, rows, cards) + least_seconds(job, served, rows, 1)


def _left(plan: Plan, cell: Cell, shard: int, decoded: Set[str]) -> tuple[int, str]:
    """Return how many rows of a shard are left to decode, and why they are."""
    path, digests = (
        journal_path(plan.layout.shard_trace(*cell, shard)),
        plan.row_digests(*cell, shard),
    )
    known = {*Journal(path, digests).rows} if path.is_file() else set()
    if not plan.config.benchmarks[cell[0]].timed:  # such rows are taken over
        known |= {name for name, digest in digests.items() if digest in decoded}
    why = rerun_reason(plan, *cell, shard)
    if known:
        why += f"; {len(known)} of {len(digests)} rows are decoded already"
    return len(digests) - len(known), why
