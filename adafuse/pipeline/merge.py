"""Joining the shards of a run; files of another plan are refused."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from adafuse.errors import UserError
from adafuse.traces.table import read_arrow, read_metadata, write_arrow


def merge_shards(files: Sequence[Path], digests: Sequence[str], out: Path) -> None:
    """Join shard traces in order; the metadata of each is kept under "shards".

    Raises:
        UserError: a file whose digest is not the one that the plan expects at its place.
    """
    described = [read_metadata(file) for file in files]
    for file, metadata, wanted in zip(files, described, digests, strict=True):
        if metadata.get("digest") != wanted:
            raise UserError(
                f"{str(file)!r} holds results of another configuration (digest"
                f" {metadata.get('digest')}, not {wanted}); delete it and run again"
            )
    table = pa.concat_tables([read_arrow(file) for file in files])
    total = hashlib.sha256("".join(digests).encode()).hexdigest()[:32]
    write_arrow(out, table, {"digest": total, "shards": described})
