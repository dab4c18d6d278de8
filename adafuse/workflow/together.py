"""Decode jobs that share models: a process that has loaded them decodes for jobs to come, too.

It writes no trace of another job, but leaves one ready: that job takes it, and loads nothing. So
Snakemake sees jobs that decode their own shards, and what a trace says of itself stays true.
"""

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adafuse.benchmarks.shards import PreparedRow
from adafuse.methods import METHODS
from adafuse.records.result import Result
from adafuse.storage.journal import WAIT, digest_of, journal_path, writer
from adafuse.workflow.decode import (
    Answers,
    decode_shard,
    decoder_of,
    ensemble_decoder,
    load_ensemble,
)
from adafuse.workflow.jobs import DecodeJob, answer_runs
from adafuse.workflow.plan import Plan
from adafuse.workflow.serving import on_servers
from adafuse.workflow.stamps import is_ready, make_ready
from adafuse.workflow.steps import STEPS, Job, gate_jobs

if TYPE_CHECKING:
    from adafuse.ensemble import Ensemble

logger = logging.getLogger(__name__)

Shard = tuple[str, str, str]
"""A benchmark, a run and the number of a shard: what a decode job is for."""

_CHARACTERS = 100_000  # of an environment variable; Linux has at most 131,072
LEAST, TIMES = 60.0, 10
"""A process begins no shard of another job when it has decoded for so many seconds, and for so many
times as long as it took to load."""


class Models:
    """The models of the last job, so that jobs with the same ones load them once."""

    def __init__(self) -> None:
        self.key: object = None
        self.loading = 0.0  # seconds
        self.since = 0.0  # by the clock of `perf_counter`
        self._ensemble: Ensemble | None = None

    def of(self, job: DecodeJob) -> "Ensemble | None":
        """Return the models of a job; None if its method only reads answers."""
        if not METHODS[job.method].uses_models:
            return None
        if self.key != (key := (job.models, job.weights)):
            from adafuse.engine.scheduler import release

            self._ensemble = self.key = None
            release()  # before others are loaded
            before = time.perf_counter()
            self._ensemble = load_ensemble(job)
            self.key, self.since = key, time.perf_counter()
            self.loading = self.since - before
        return self._ensemble

    def decode(
        self, job: DecodeJob, rows: Sequence[PreparedRow], answers: Answers | None
    ) -> Iterator[tuple[int, Result]]:
        """Decode with them; a decoder of `decode_shard`."""
        return ensemble_decoder(job, rows, answers, self.of(job))


class Others(NamedTuple):
    """The jobs of a start of the workflow; `limited` if it waits for this one to end."""

    limited: bool = False
    shards: Sequence[Shard] = ()

    @classmethod
    def told(cls, plan: Plan) -> "Others":
        """Return what `tell` told this process."""
        limited, shards = json.loads(os.environ.get(_variable(plan), "[false, []]"))
        known = {*STEPS["decode"].cells(plan.config)}
        return cls(limited, [each for each in map(tuple, shards) if each in known])


def tell(plan: Plan, shards: Sequence[tuple[str, ...]], *, limited: bool) -> None:
    """Tell processes that are started from now on which decode jobs are to be done."""
    sizes = accumulate(len(json.dumps(each)) + 2 for each in shards)
    most = sum(size <= _CHARACTERS for size in sizes)
    os.environ[_variable(plan)] = json.dumps([limited, shards[:most]])


def _variable(plan: Plan) -> str:
    return f"ADAFUSE_TOGETHER_{digest_of(plan.config.results)[:8]}"


def shared_models(plan: Plan, benchmark: str, run: str) -> tuple[object, ...] | None:
    """Return what jobs that share models have in common; None for one that shares none.

    A timed job has the machine to itself; servers are shared anyway; a job that starts from the
    answers of others waits for these.
    """
    job = plan.decode_job(benchmark, run)
    alone = job.timed or job.served or not METHODS[job.method].uses_models
    return None if alone or answer_runs(plan.config, run) else (job.models, job.weights)


def decode_together(plan: Plan, shard: Shard, digest: str) -> None:
    """Decode a shard, and with the models that this has loaded, shards of other jobs.

    If another process is decoding the shard for this one, others come first.
    """
    models, others = Models(), Others.told(plan)
    key = shared_models(plan, *shard[:2])
    at = others.shards.index(shard) + 1 if shard in others.shards else 0
    turned = [*others.shards[at:], *others.shards[:at]]
    mine = [each for each in turned if each != shard and shared_models(plan, *each[:2]) == key]
    others = Others(others.limited, mine if key else [])
    if others.shards and writer(journal_path(plan.layout.shard_trace(*shard))):
        _help(plan, others, models)
    _decode(plan, shard, digest, models, patience=-1 if others.shards else WAIT)
    if others.shards:
        make_ready(plan.layout.shard_trace(*shard), digest)
    if models.key is not None:
        _help(plan, others, models)


def _decode(plan: Plan, shard: Shard, digest: str, models: Models, **how: Any) -> None:
    config, layout = plan.config, plan.layout
    benchmark, run, number = shard
    gate = next(iter(plan.files(gate_jobs(config, [(benchmark, run)]))), None)
    planned = plan.decode_job(benchmark, run).with_gate(gate)
    with on_servers(config, planned) as job, decoder_of(job, models.decode) as (decoder, served):
        decode_shard(
            job,
            int(number),
            layout.shard_rows(benchmark, number),
            layout.shard_trace(*shard),
            digest=digest,
            decoder=decoder,
            served=served,
            answers=[layout.shard_trace(benchmark, r, number) for r in answer_runs(config, run)],
            traces=None if config.benchmarks[benchmark].timed else layout.traces,
            max_error_share=config.decode.max_error_share,
            **how,
        )


def _help(plan: Plan, others: Others, models: Models) -> None:
    """Decode shards of other jobs that nobody is decoding, as far as their inputs are there."""
    for shard in others.shards:
        spent = time.perf_counter() - models.since
        if others.limited and models.key and spent > max(LEAST, TIMES * models.loading):
            return
        job, trace = Job.of("decode", *shard), plan.layout.shard_trace(*shard)
        digest = plan.key(job)
        if plan.is_done(job) or is_ready(trace, digest) or writer(journal_path(trace)):
            continue
        if not all(map(plan.is_done, plan.reads(job))):
            continue
        logger.info("with the same models: shard %s of %s on %s", shard[2], shard[1], shard[0])
        try:
            with _logging_to(plan.layout.log("decode", *shard)):
                _decode(plan, shard, digest, models, patience=0, ahead=True)
        except Exception as error:  # noqa: BLE001 - its own job raises and reports it
            logger.warning("left to its own job: %s", error)


@contextmanager
def _logging_to(log: Path) -> Iterator[None]:
    """Have the package's messages in the log of another job, with those of all its attempts."""
    attempts = log.with_name(f"{log.name}.attempts")
    attempts.parent.mkdir(parents=True, exist_ok=True)
    root = logging.getLogger()
    handler = logging.FileHandler(attempts)
    before, root.handlers = root.handlers, [handler]
    handler.setFormatter(before[0].formatter if before else None)
    with suppress(OSError):  # its job makes this link, too
        log.unlink(missing_ok=True)
        os.link(attempts, log)
    try:
        yield
    finally:
        root.handlers = before
        handler.close()
