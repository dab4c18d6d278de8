"""Traces of another configuration are made older than their rows.

Snakemake notices another configuration by records of its own in .snakemake. Where these are lost,
or the files came from elsewhere, it goes by the times of files alone.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from adafuse.errors import UserError
from adafuse.pipeline.plan import Plan

_LONG_AGO = 1.0
"""Seconds since 1970; 0 is what some file systems say of times that they do not know."""


def date_outdated(plan: Plan) -> None:
    """Date the shard traces that are not the plan's to 1970.

    One that was dated so and is the plan's again gets the time of now.
    """
    for path, digest in _expected(plan):
        if not path.is_file():
            continue
        dated = path.stat().st_mtime == _LONG_AGO
        if stored_digest(path) != digest:
            os.utime(path, (_LONG_AGO, _LONG_AGO))
        elif dated:
            os.utime(path)


def stored_digest(path: Path) -> str | None:
    """Return the digest of the job that wrote a trace; None if the file is torn or foreign."""
    from adafuse.traces.table import (
        read_metadata,
    )  # pyarrow, which an empty folder need not wait for

    try:
        digest = read_metadata(path).get("digest")
    except UserError:
        return None
    return None if digest is None else str(digest)


def _expected(plan: Plan) -> Iterator[tuple[Path, str]]:
    for benchmark in plan.benchmarks:
        for run in plan.decoded_runs:
            folder = Path(plan.config.results, "traces", benchmark, run)
            if folder.is_dir():
                for shard, digest in enumerate(plan.digests(benchmark, run)):
                    yield folder / f"{shard}.parquet", digest
