"""Joining the shards of a run; files of another plan, and lost or doubled rows, are refused."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from adafuse.benchmarks.shards import read_shard
from adafuse.errors import UserError
from adafuse.workflow.journal import journal_path
from adafuse.workflow.traces import read_arrow, read_metadata, write_arrow


def merge_shards(
    files: Sequence[Path], digests: Sequence[str], rows: Sequence[Path], out: Path
) -> None:
    """Join shard traces in order; the metadata of each is kept under "shards".

    The journals beside the shards are deleted: nothing is left for them to save.

    Args:
        files: a trace per shard.
        digests: what the plan expects of each.
        rows: the rows that each was decoded from.
        out: the trace of the whole benchmark.

    Raises:
        UserError: files that cannot be read, or whose digests are not those of the plan (all are
            named), or a row that is missing or there twice.
    """
    described = [read_metadata(file) for file in files]
    _check_digests(files, described, digests)
    tables = [read_arrow(file) for file in files]
    for file, table, wanted in zip(files, tables, rows, strict=True):
        _check_ids(file, table["id"].to_pylist(), [row.id for row in read_shard(wanted)])
    total = hashlib.sha256("".join(digests).encode()).hexdigest()[:32]
    write_arrow(out, pa.concat_tables(tables), {"digest": total, "shards": described})
    for file in files:
        journal_path(file).unlink(missing_ok=True)


def _check_digests(
    files: Sequence[Path], described: Sequence[dict[str, Any]], digests: Sequence[str]
) -> None:
    found = [metadata.get("digest") for metadata in described]
    others = [
        f"{str(file)!r} (digest {digest}, not {wanted})"
        for file, digest, wanted in zip(files, found, digests, strict=True)
        if digest != wanted
    ]
    if others:
        what = "holds" if len(others) == 1 else "hold"
        raise UserError(
            f"{' and '.join(others)} {what} results of another configuration; delete"
            f" {'it' if len(others) == 1 else 'them'} and run again"
        )


def _check_ids(file: Path, ids: Sequence[str], wanted: Sequence[str]) -> None:
    counts, known = Counter(ids), set(wanted)
    doubled = [name for name, count in counts.items() if count > 1]
    missing = [name for name in wanted if name not in counts]
    unknown = [name for name in counts if name not in known]
    for names, what in ((doubled, "twice"), (missing, "missing"), (unknown, "too many")):
        if names:
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise UserError(
                f"{str(file)!r} is not whole: {what}: row {names[0]!r}{others}; delete it and run"
                " again"
            )
