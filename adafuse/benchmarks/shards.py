"""Shards: rows dealt by a hash of their id, so that a changed row touches one shard only."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from adafuse.traces.atomic import write_text


@dataclass(frozen=True, slots=True)
class ShardRow:
    """What decoding sees of a row: no answers, so a corrected answer decodes nothing again.

    `task` is the prompt without worked examples, for methods that read finished answers.
    """

    id: str
    prompt: str
    prompt_sha256: str
    task: str


def shard_of(identifier: str, shards: int) -> int:
    """Return the shard of a row: it depends on its id and the number of shards, nothing else."""
    return int.from_bytes(hashlib.sha256(identifier.encode()).digest()[:8]) % shards


def shard_digest(rows: Iterable[ShardRow]) -> str:
    """Return a digest of the ids, prompts and tasks of a shard, in order."""
    total = hashlib.sha256()
    for row in rows:
        total.update(json.dumps([row.id, row.prompt_sha256, row.task]).encode() + b"\n")
    return total.hexdigest()[:32]


def write_shard(path: Path, rows: Iterable[ShardRow]) -> None:
    """Write the rows of a shard as JSON lines."""
    write_text(path, "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))


def read_shard(path: Path) -> tuple[ShardRow, ...]:
    """Read the rows that `write_shard` wrote."""
    lines = path.read_bytes().split(b"\n")
    return tuple(ShardRow(**json.loads(line)) for line in lines if line)
