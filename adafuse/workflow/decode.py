"""Decoding a shard into its trace, and joining the traces of the shards of a run."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from adafuse.benchmarks.shards import PreparedRow, read_prepared
from adafuse.errors import UserError
from adafuse.methods import METHODS, resolve
from adafuse.models.files import check_unchanged
from adafuse.records.result import Answer, Result
from adafuse.records.served import are_same
from adafuse.startup import fast_imports
from adafuse.storage.files import remove_torn
from adafuse.storage.journal import WAIT, Journal, Row, journal_path, journal_rows, too_many
from adafuse.storage.parquet import as_table, iterate_rows, read_arrow, read_metadata, read_rows
from adafuse.storage.provenance import this_machine
from adafuse.storage.traces import ORIGIN, RESULT_FIELDS, result_columns, write_joined, write_trace
from adafuse.workflow.digest import (
    decode_digest,
    job_digest,
    merged_digest,
    row_digests,
    shard_digest,
)
from adafuse.workflow.jobs import DecodeJob
from adafuse.workflow.stamps import (
    forget_ready,
    is_fresh,
    is_ready,
    is_unchanged,
    keep,
    ready_path,
    take_ready,
    write_stamp,
)

if TYPE_CHECKING:
    from adafuse.development.gate_file import FittedGate
    from adafuse.ensemble import Ensemble

logger = logging.getLogger(__name__)

Answers = Sequence[tuple[Answer, ...]]
Decoder = Callable[[DecodeJob, Sequence[PreparedRow], Answers | None], Iterator[tuple[int, Result]]]

TRACE_FIELDS = [
    pa.field("id", pa.string()),
    pa.field("benchmark", pa.string()),
    pa.field("run", pa.string()),
    pa.field("shard", pa.int32()),
    pa.field("prompt_sha256", pa.string()),
    pa.field("digest", pa.string()),
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
    served: list[Any] | None = None,
    answers: Sequence[Path] = (),
    traces: Path | None = None,
    max_error_share: float = 1.0,
    patience: float = WAIT,
    ahead: bool = False,
) -> None:
    """Decode the rows of a shard file and write them, in its order, to a Parquet file.

    A journal stands beside it until the shards are merged: what was decoded stays there whatever
    happens. Rows that any other file under `traces` has are taken from there. The `digest` is what
    the plan expects; the `decoder` yields each result with its number as it ends, and `served` is
    what the models' servers say of themselves; `answers` are shard traces of the single models, for
    a method that starts from them. Rows that other servers decoded are decoded again.

    Decoded `ahead`, for a job to come, the trace is left where that job finds it ready. Another
    process that decodes the shard is waited for with `patience`, in seconds (-1: any time).
    """
    started = _now()
    _log_place()
    rows = _planned_rows(job, file, answers, digest)
    digests = mark_failed(row_digests(job, rows, [_digests(trace) for trace in answers]), answers)
    servers = _servers_of(answers, served or [])
    with Journal(journal_path(out), digests, patience) as journal:
        if ahead and (is_fresh(out, digest) or is_ready(out, digest)):
            return
        if is_ready(out, digest, max_error_share):
            logger.info("this shard is decoded already, by a process with the same models")
            return take_ready(out, digest)
        remove_torn(out)
        journal.continue_with(servers, are_same)
        _drop_failed(journal, len(rows), max_error_share)
        journaled = len(journal.rows)
        if traces is not None:
            _keep_earlier(out.parent, digests)
        sources = [] if traces is None else _take_over(journal, digests, traces, servers)
        reused = len(journal.rows) - journaled
        left = [row for row in rows if row.id not in journal.rows]
        to_do = f"{len(left)} of {len(rows)} rows to do, {reused} were decoded before"
        logger.info("%s on %s: %s", job.run, job.benchmark, to_do)
        for result in _decoded(job, left, decoder, answers) if left else ():
            row = {"digest": digests[result["id"]], **result}
            journal.append(row["id"], row)
            told = len(journal.rows), len(rows), row["id"], row["stop_reason"]
            logger.info("%d of %d: %s (%s)", *told)
            if row["stop_reason"] == "error":
                _check_failed(journal, len(rows), max_error_share)
        came_about = {"resumed": journaled, "reused": reused, "reused_from": sources}
        came_about |= {"served": servers} if servers else {}
        to = ready_path(out) if ahead else out
        _write(to, job, shard, rows, journal, digest=digest, started=started, **came_about)
        write_stamp(to, digest)  # before another process can decode the shard


def _log_place() -> None:
    place = this_machine()
    details = [f", {key} {value}" for key, value in place.items() if value and key != "host"]
    logger.info("running on %s%s", place["host"], "".join(details))


def _planned_rows(
    job: DecodeJob, file: Path, answers: Sequence[Path], digest: str
) -> Sequence[PreparedRow]:
    """Return the rows of a shard file; refuse those that another digest was planned for."""
    rows = read_prepared(file)
    found = [str(read_metadata(trace).get("digest")) for trace in answers]
    if decode_digest(job, shard_digest(rows), found) != digest:
        raise UserError(
            f"{str(file)!r} is not what digest {digest} was planned for: the configuration, the"
            " benchmark, a model or a plug-in was changed since; run again"
        )
    return rows


def _servers_of(answers: Sequence[Path], served: list[Any]) -> list[Any]:
    """Return the servers that decode, or that decoded the answers; refuse answers of other ones."""
    found = [each for trace in answers for each in read_metadata(trace).get("served", [None])]
    if served and answers and not are_same(found, served):
        number = next(
            n for n, pair in enumerate(zip(found, served, strict=True)) if not _same(pair)
        )
        raise UserError(
            f"the answers in {str(answers[number])!r} are of {_said(found[number])}, but the server"
            f" has {_said(served[number])} now; delete that file and run again"
        )
    return served or (found if any(found) else [])


def _same(pair: tuple[Any, Any]) -> bool:
    return are_same(pair[:1], pair[1:])


def _said(served: Mapping[str, Any] | None) -> str:
    """Say for people what a server is."""
    if served is None:
        return "a model that was loaded"
    index, value = served["likely"][0][0]
    name = f"{served['model']!r} on {served['engine']} {served['version']}"
    return f"{name} (context {served['context']}, log p({index}) {value:.2f} after a fixed prefix)"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(
    out: Path,
    job: DecodeJob,
    shard: int,
    rows: Sequence[PreparedRow],
    journal: Journal,
    **others: Any,
) -> None:
    names = {"benchmark": job.benchmark, "run": job.run, "shard": shard}
    ordered = [{**journal.rows[row.id], **names, "id": row.id} for row in rows]
    counts = {"failed": len(_failed(journal)), "rows": len(rows)}
    others |= {"shard": shard, **counts, "finished": _now()}
    table, record = as_table(TRACE_FIELDS, ordered), job.record()
    write_trace(out, table, record, job.plugins, settings_key="job", **others)


def mark_failed(digests: dict[str, str], answers: Sequence[Path]) -> dict[str, str]:
    """Mark rows that start from a failed answer: with an answer they are other rows."""
    failed = {
        row["id"]
        for trace in answers
        for row in read_rows(trace, ["id", "stop_reason"])
        if row["stop_reason"] == "error"
    }
    return {name: f"{own}-failed" if name in failed else own for name, own in digests.items()}


def _digests(trace: Path) -> dict[str, str]:
    return {row["id"]: row["digest"] for row in read_rows(trace, ["id", "digest"])}


EARLIER = 8
"""So many traces of a run with other settings or questions are kept, if these are set again."""


def _keep_earlier(folder: Path, digests: Mapping[str, str]) -> None:
    """Keep the whole trace of a run of which some rows are about to be replaced."""
    merged = folder.parent / f"{folder.name}.parquet"
    with suppress(UserError, OSError):  # there is none, or it cannot be read, or linked
        if any(digests.get(name, own) != own for name, own in _digests(merged).items()):
            keep(merged, folder / ".earlier", EARLIER)


def _take_over(
    journal: Journal, digests: Mapping[str, str], traces: Path, served: list[Any]
) -> list[dict[str, Any]]:
    """Take rows that the journal lacks from files under `traces`; return what is known of these."""
    missing = {name: own for name, own in digests.items() if name not in journal.rows}
    earlier = decoded_before(traces, missing.values(), served) if missing else {}
    known = {own: row for rows in earlier.values() for own, row in rows.items()}
    journal.rows |= {name: known[own] for name, own in missing.items() if own in known}
    return [_source(path, len(rows)) for path, rows in earlier.items()]


def decoded_before(
    traces: Path, wanted: Iterable[str], served: list[Any]
) -> dict[Path, dict[str, Row]]:
    """Return rows without errors, by file and digest, from a results folder's traces and journals.

    Each wanted row comes from one file, and from the same servers.
    """

    def same(servers: list[Any]) -> bool:
        return are_same(servers, served)

    left, found = {*wanted}, dict[Path, dict[str, Row]]()
    for path in (*sorted(traces.rglob("*.journal")), *sorted(traces.rglob("*.parquet"))):
        if not left:
            break
        rows = journal_rows(path, same) if path.suffix == ".journal" else _rows_of(path, left, same)
        if good := _good(rows, left):
            found[path] = good
            left -= good.keys()
    return found


def kept_digests(traces: Path) -> set[str]:
    """Return the digests of all rows without errors in a results folder's traces and journals."""
    found = set[str]()
    for path in traces.rglob("*.journal"):
        found |= {digest for digest, row in journal_rows(path).items() if not row["error"]}
    for path in traces.rglob("*.parquet"):
        with suppress(UserError, OSError):  # as in `_rows_of`
            if is_unchanged(path):
                rows = read_rows(path, ["digest", "error"])
                found |= {row["digest"] for row in rows if not row["error"]}
    return found


def served_in(trace: Path) -> list[list[Any]]:
    """Return the servers of each shard of a trace; none where models were loaded."""
    metadata = read_metadata(trace)
    return [shard.get("served", []) for shard in metadata.get("shards", [metadata])]


def _source(path: Path, rows: int) -> dict[str, Any]:
    """Return where rows were taken from, and how they came about there, as far as that is known."""
    known: list[dict[str, Any]] = []
    if path.suffix == ".parquet":
        metadata = read_metadata(path)
        shards = metadata.get("shards", [metadata])
        names = (*ORIGIN, "started", "finished")
        known = [{name: shard.get(name) for name in names} for shard in shards]
    return {"file": str(path), "rows": rows, "decoded": known}


def _good(rows: Mapping[str, Row], wanted: set[str]) -> dict[str, Row]:
    return {d: row for d, row in rows.items() if d in wanted and row["stop_reason"] != "error"}


def _rows_of(path: Path, wanted: set[str], same: Callable[[list[Any]], bool]) -> dict[str, Row]:
    """Return the rows of a trace by digest; none of a file that the workflow did not write."""
    with suppress(UserError, OSError):  # one that is torn, or being replaced
        decoded = read_arrow(path, ["digest"])["digest"].to_pylist() if is_unchanged(path) else ()
        if not wanted.isdisjoint(decoded):
            if not all(map(same, served_in(path))):
                return {}
            rows = iterate_rows(path, {field.name for field in TRACE_FIELDS})
            return {row["digest"]: row for row in rows}
    return {}


def _decoded(
    job: DecodeJob, rows: Sequence[PreparedRow], decoder: Decoder, answers: Sequence[Path]
) -> Iterator[Row]:
    given = read_answers(answers, [row.id for row in rows]) if answers else None
    for index, result in decoder(job, rows, given):
        row = rows[index]
        yield {"id": row.id, "prompt_sha256": row.prompt_sha256, **result_columns(result)}


def _failed(journal: Journal) -> dict[str, str]:
    rows = journal.rows.items()
    return {
        name: row["error"] or "no reason" for name, row in rows if row["stop_reason"] == "error"
    }


def _drop_failed(journal: Journal, rows: int, share: float) -> None:
    if too_many(len(failed := _failed(journal)), rows, share):
        logger.warning("%d rows that failed are decoded again", len(failed))
        for name in failed:
            del journal.rows[name]


def _check_failed(journal: Journal, rows: int, share: float) -> None:
    failed = _failed(journal)
    if not too_many(len(failed), rows, share):
        return
    first, error = next(iter(failed.items()))
    done = len(journal.rows)
    raise UserError(
        f"{len(failed)} of {rows} rows failed, of {done} decoded so far, more than"
        f" decode.max_error_share: {share:g} allows; the first one, {first!r}, says:"
        f" {' '.join(error.split())}; fix it or raise the share, and run again:"
        f" {done - len(failed)} rows are kept"
    )


def read_answers(files: Sequence[Path], ids: Sequence[str]) -> list[tuple[Answer, ...]]:
    """Return the answers of all models to each row, from a shard trace per model."""
    by_model: list[dict[str, Answer]] = []
    for file in files:
        rows = iterate_rows(file, {"id", "text", "stop_reason", "seconds", "thoughts"})
        by_model.append({row.pop("id"): Answer(**row) for row in rows})
        if missing := [row for row in ids if row not in by_model[-1]]:
            raise UserError(f"{str(file)!r} has no answer to row {missing[0]!r}; decode it again")
    return [tuple(answers[row] for answers in by_model) for row in ids]


@contextmanager
def decoder_of(job: DecodeJob, decoder: Decoder) -> Iterator[tuple[Decoder, list[Any]]]:
    """Return what decodes a job, and the servers of its models.

    A job that uses servers connects to them at once: which of its rows are done depends on them.
    Others have a `decoder`, which loads models when there is a row to decode.
    """
    if not job.served:
        yield decoder, []
        return
    with load_ensemble(job) as ensemble:
        yield partial(ensemble_decoder, ensemble=ensemble), ensemble.served_by


def ensemble_decoder(
    job: DecodeJob,
    rows: Sequence[PreparedRow],
    answers: Answers | None,
    ensemble: "Ensemble | None" = None,
) -> Iterator[tuple[int, Result]]:
    """Load the models of a job, unless there are some, and decode."""
    with fast_imports():
        from adafuse.ensemble import Ensemble
        from adafuse.models.placement import Place

    if answers is not None and not METHODS[job.method].uses_models:
        ensemble = Ensemble((), _weights(job), Place.of(job.models[0]))
    ensemble = ensemble or load_ensemble(job)
    results = ensemble.stream(
        [row.prompt for row in rows],
        method=job.method,
        answers=answers,
        questions=[row.question for row in rows],
        **job.settings.model_dump(),
        **job.options,
    )
    return ensemble.while_served(results, "run again: rows that are done are kept")


def fit_gate(job: DecodeJob, rows: Sequence[PreparedRow], scorer: str, out: Path) -> "FittedGate":
    """Load the models of a job, and fit a gate on the rows that are no few-shot examples.

    A journal stands beside the gate until it is written: an interrupted fit goes on where it was.
    """
    with fast_imports():
        from adafuse.development.gate_file import write_gate
        from adafuse.development.gate_fitting import Development, Kept, fit

    own = [row for row in rows if not row.shot]
    development = Development(
        job.benchmark,
        [row.prompt for row in own],
        [row.answers for row in own],
        scorer,
        job.settings.model_dump(),
        questions=[row.question for row in own],
    )
    options = resolve(job.method, job.options).unfitted
    kept = Kept(journal_path(out), job_digest(job))
    gate = fit(load_ensemble(job), [development], method=job.method, kept=kept, **options)
    write_gate(out, gate)
    kept.file.unlink(missing_ok=True)
    return gate


def load_ensemble(job: DecodeJob) -> "Ensemble":
    """Load the models of a job; it has the CPU threads that Snakemake or Slurm gives it."""
    import torch

    from adafuse.ensemble import Ensemble

    threads = torch.get_num_threads()
    ensemble = Ensemble.from_pretrained(job.models, weights=_weights(job), threads=threads)
    for model in job.models:
        check_unchanged(model.name, served=model.server is not None)
    return ensemble


def _weights(job: DecodeJob) -> tuple[float, ...]:
    return job.weights or (1.0,) * len(job.models)


def merge_shards(
    files: Sequence[Path], digests: Sequence[str], rows: Sequence[Path], out: Path
) -> None:
    """Join shard traces in order, keep the metadata of each under "shards", delete the journals.

    A journal that holds rows of another configuration, too, stays.

    Each must have the digest that the plan expects, and the `rows` that it was decoded from.
    """
    shards = [read_metadata(file) for file in files]
    others = [
        f"{str(file)!r} (digest {shard.get('digest')}, not {digest})"
        for file, shard, digest in zip(files, shards, digests, strict=True)
        if shard.get("digest") != digest
    ]
    if others:
        code = {name for s in shards for name in s["job"].get("plugins", {}).items()}
        twice = [name for name, n in Counter(name for name, _ in code).items() if n > 1]
        what = f"another version of plug-in {twice[0]!r}" if twice else "another configuration"
        raise UserError(
            f"results of {what}: {', '.join(others)}; run snakemake, which makes them again"
        )
    _check_servers(files, shards)
    tables = [read_arrow(file) for file in files]
    for file, table, shard_rows in zip(files, tables, rows, strict=True):
        expected = Counter(row.id for row in read_prepared(shard_rows))
        found = Counter(table["id"].to_pylist())
        if odd := [*(expected - found), *(found - expected)]:
            what = "missing" if odd[0] not in found else "there too often"
            raise UserError(
                f"{str(file)!r} is not whole: row {odd[0]!r} is {what}; delete it and run again"
            )
    names = {name: shards[0]["job"][name] for name in ("benchmark", "run")}
    table, digest = pa.concat_tables(tables, promote_options="default"), merged_digest(digests)
    write_joined(out, table, "shards", shards, digest=digest, **names)
    kept = {digest for table in tables for digest in table["digest"].to_pylist()}
    for file in files:
        forget_ready(file)
        if journal_rows(journal_path(file)).keys() <= kept:
            journal_path(file).unlink(missing_ok=True)


def _check_servers(files: Sequence[Path], shards: Sequence[Mapping[str, Any]]) -> None:
    """Refuse shards that different servers decoded; those now are taken to be of the last one."""
    pairs = [*zip(files, shards, strict=True)]
    last = max(pairs, key=lambda pair: (str(pair[1].get("finished")), pair[0].stat().st_mtime_ns))
    now: list[Any] = last[1].get("served", [])
    told = [(file, shard.get("served", [])) for file, shard in pairs]
    others = [(file, servers) for file, servers in told if not are_same(servers, now)]
    if others:
        models = zip(others[0][1], now, strict=False)
        before, after = next(pair for pair in models if not _same(pair))
        names = ", ".join(repr(str(file)) for file, _ in others)
        raise UserError(
            f"a run is of one set of models, but shards were decoded by {_said(before)} and by"
            f" {_said(after)}; to decode again by the latter, delete {names} and run again"
        )
