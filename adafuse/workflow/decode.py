"""What each model wrote on its own for the rows of a shard, for methods that start from that."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from adafuse.benchmarks.shards import PreparedRow, read_shard, shard_digest
from adafuse.errors import UserError
from adafuse.files import remove_torn
from adafuse.methods import METHODS
from adafuse.records import Answer, Result
from adafuse.workflow.jobs import DecodeJob
from adafuse.workflow.journal import Journal, journal_path
from adafuse.workflow.provenance import place, source_commit, versions
from adafuse.workflow.traces import (
    RESULT_FIELDS,
    read_metadata,
    read_rows,
    result_columns,
    write_table,
)


def answer_digests(files: Sequence[Path]) -> tuple[str, ...]:
    """Return the digests of shard traces, which tell what the answers are."""
    return tuple(str(read_metadata(file).get("digest")) for file in files)


def read_answers(files: Sequence[Path], ids: Sequence[str]) -> list[tuple[Answer, ...]]:
    """Return the answers of all models to each row.

    Args:
        files: a shard trace per model.
        ids: the rows.

    Raises:
        UserError: a trace lacks a row.
    """
    by_model = [_by_id(file) for file in files]
    for file, answers in zip(files, by_model, strict=True):
        if missing := [row for row in ids if row not in answers]:
            raise UserError(f"{str(file)!r} has no answer to row {missing[0]!r}; decode it again")
    return [tuple(answers[row] for answers in by_model) for row in ids]


def _by_id(file: Path) -> dict[str, Answer]:
    rows = read_rows(file, ["id", "text", "stop_reason", "seconds"])
    return {row["id"]: Answer(row["text"], row["stop_reason"], row["seconds"]) for row in rows}


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ErrorLimit:
    """Of `rows` rows no more than the part `share`, from 0 to 1, may fail."""

    rows: int
    share: float

    def check(self, journal: Journal) -> None:
        """Refuse to go on with too many failed rows.

        Raises:
            UserError: there are more; it tells the first one.
        """
        if self._kept(failed := _failed(journal)):
            return
        first, error = next(iter(failed.items()))
        sentence = " ".join(error.split())
        raise UserError(
            f"{len(failed)} of {self.rows} rows failed, more than decode.max_error_share:"
            f" {self.share:g} allows; the first one, {first!r}, says: {sentence}; mend it or raise"
            f" the share, and run again: {len(journal.rows) - len(failed)} rows are kept"
        )

    def retry(self, journal: Journal) -> None:
        """Forget the failed rows of an attempt that had too many, so that they are tried again."""
        if not self._kept(failed := _failed(journal)):
            logger.warning("%d rows that failed are decoded again", len(failed))
            journal.forget(failed)

    def _kept(self, failed: dict[str, str]) -> bool:
        return len(failed) <= self.share * self.rows


def _failed(journal: Journal) -> dict[str, str]:
    """Return the errors of failed rows by id, the first one first."""
    rows = journal.rows.items()
    return {name: row["error"] for name, row in rows if row["stop_reason"] == "error"}


Answers = Sequence[tuple[Answer, ...]]
Decoder = Callable[[DecodeJob, Sequence[PreparedRow], Answers | None], Iterator[tuple[int, Result]]]

TRACE_FIELDS = [
    pa.field("id", pa.string()),
    pa.field("benchmark", pa.string()),
    pa.field("run", pa.string()),
    pa.field("shard", pa.int32()),
    pa.field("prompt_sha256", pa.string()),
    *RESULT_FIELDS,
]
"""Columns of a benchmark trace: which row and job it is, then the result."""


def decode_shard(
    job: DecodeJob,
    shard: int,
    file: Path,
    out: Path,
    *,
    digest: str,
    decoder: Decoder,
    answers: Sequence[Path] = (),
    max_error_share: float = 1.0,
) -> None:
    """Decode the rows of a shard file and write them, in its order, to a Parquet file.

    Args:
        job: what to decode with.
        shard: the number of the shard.
        file: the shard's rows.
        out: the trace; a journal stands beside it until the shards are merged.
        digest: what the workflow expects; another one means that files and plan do not fit.
        decoder: decodes rows.
        answers: shard traces of the models alone, for a method that starts from them.
        max_error_share: rows may fail, but no larger a part of the shard than this.

    Raises:
        UserError: the digest is another one, a model cannot be used, another job is at this shard,
            or too many rows failed; what was decoded stays in the journal.
    """
    started = datetime.now(UTC)
    logger.info("running on %s", place().told())
    rows = read_shard(file)
    if job.digest(shard_digest(rows), answer_digests(answers)) != digest:
        raise UserError(
            f"{str(file)!r} is not what digest {digest} was planned for; delete it and run again"
        )
    limit = ErrorLimit(len(rows), max_error_share)
    with Journal(journal_path(out), digest, (row.id for row in rows)) as journal:
        remove_torn(out)
        limit.retry(journal)
        resumed = len(journal.rows)
        _decode_missing(job, shard, rows, journal, decoder, answers, limit)
        described = _metadata(job, shard, digest, resumed, started)
        write_table(out, TRACE_FIELDS, [journal.rows[row.id] for row in rows], described)


def _decode_missing(
    job: DecodeJob,
    shard: int,
    rows: Sequence[PreparedRow],
    journal: Journal,
    decoder: Decoder,
    answers: Sequence[Path],
    limit: ErrorLimit,
) -> None:
    missing = [row for row in rows if row.id not in journal.rows]
    logger.info("%s on %s: %d of %d rows to do", job.run, job.benchmark, len(missing), len(rows))
    if not missing:
        return
    given = read_answers(answers, [row.id for row in missing]) if answers else None
    for index, result in decoder(job, missing, given):
        row = missing[index]
        names = {"id": row.id, "benchmark": job.benchmark, "run": job.run, "shard": shard}
        digest = {"prompt_sha256": row.prompt_sha256}
        journal.append(row.id, names | digest | result_columns(result))
        logger.info("%d of %d: %s (%s)", len(journal.rows), len(rows), row.id, result.stop_reason)
        if result.error is not None:
            limit.check(journal)


def _metadata(
    job: DecodeJob, shard: int, digest: str, resumed: int, started: datetime
) -> dict[str, Any]:
    return {
        "digest": digest,
        "job": job.record(),
        "shard": shard,
        "versions": versions(),
        "git": asdict(source_commit()),
        "place": asdict(place()),
        "resumed": resumed,
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def ensemble_decoder(
    job: DecodeJob, rows: Sequence[PreparedRow], answers: Answers | None
) -> Iterator[tuple[int, Result]]:
    """Load the models of a job and decode; the only place of the workflow that needs them."""
    from adafuse.ensemble import Ensemble
    from adafuse.models.placement import Place

    weights = job.weights or (1.0,) * len(job.models)
    if answers is not None and not METHODS[job.method].uses_models:
        ensemble = Ensemble((), weights, Place.of(job.models[0]))
    else:
        ensemble = Ensemble.from_pretrained(job.models, weights=weights)
    yield from ensemble.stream(
        [row.prompt for row in rows],
        method=job.method,
        max_new_tokens=job.max_new_tokens,
        max_rounds=job.max_rounds,
        stop=job.stop,
        batch_size=job.batch_size,
        engine=job.engine,
        answers=answers,
        questions=[row.question for row in rows],
        **job.options,
    )
