"""Prepared rows, and the shards that they are dealt to."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from adafuse.benchmarks.prompts import Frame, question_key
from adafuse.benchmarks.rows import Row, Rows
from adafuse.errors import UserError
from adafuse.files import write_text


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


def write_shard(path: Path, rows: Iterable[ShardRow]) -> None:
    """Write the rows of a shard as JSON lines."""
    write_text(path, "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))


def read_shard(path: Path) -> tuple[ShardRow, ...]:
    """Read the rows that `write_shard` wrote."""
    lines = path.read_bytes().split(b"\n")
    return tuple(ShardRow(**json.loads(line)) for line in lines if line)


@dataclass(frozen=True, slots=True)
class PreparedRow:
    """A row as scoring sees it.

    `shot` rows are worked examples of the prompt, to be left out of a strict score. `task` is the
    prompt without worked examples.
    """

    id: str
    shard: int
    prompt: str
    prompt_sha256: str
    answers: tuple[str, ...]
    shot: bool = False
    task: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """All rows of a benchmark in file order; `duplicates` ids occurred before in the file."""

    rows: tuple[PreparedRow, ...]
    duplicates: int

    def shard(self, number: int) -> tuple[ShardRow, ...]:
        """Return the rows of one shard in file order."""
        return tuple(
            ShardRow(row.id, row.prompt, row.prompt_sha256, row.task)
            for row in self.rows
            if row.shard == number
        )


def prepare(
    source: Rows, frame: Frame, *, shards: int, owner: str, shots: frozenset[str] = frozenset()
) -> Prepared:
    """Frame the rows of a source, deal them to shards and mark those that are worked examples.

    Args:
        source: the rows.
        frame: what stands around each question.
        shards: how many.
        owner: names the benchmark in errors.
        shots: keys of the questions to mark; see `question_key`.

    Raises:
        UserError: a shard that gets no rows.
    """
    rows = tuple(_prepared(row, frame, shards, shots) for row in source.rows)
    empty = shards - len({row.shard for row in rows})
    if empty:
        raise UserError(
            f"{owner}: {len(rows)} rows leave {empty} of {shards} shards empty; use fewer shards"
        )
    return Prepared(rows, source.duplicates)


def _prepared(row: Row, frame: Frame, shards: int, shots: frozenset[str]) -> PreparedRow:
    prompt = frame.prompt(row.question)
    digest = hashlib.sha256(prompt.encode()).hexdigest()
    shot = bool(shots) and question_key(row.question) in shots
    place, task = shard_of(row.id, shards), frame.task(row.question)
    return PreparedRow(row.id, place, prompt, digest, row.answers, shot, task)


def write_prepared(path: Path, rows: Iterable[PreparedRow]) -> None:
    """Write prepared rows as JSON lines."""
    write_text(path, "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))


def read_prepared(path: Path) -> tuple[PreparedRow, ...]:
    """Read the rows that `write_prepared` wrote."""
    values = (json.loads(line) for line in path.read_bytes().split(b"\n") if line)
    return tuple(PreparedRow(**{**each, "answers": tuple(each["answers"])}) for each in values)
