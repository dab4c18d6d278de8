"""Prepared rows, and the shards that they are dealt to."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from adafuse.benchmarks.prompts import PromptTemplate, question_key
from adafuse.benchmarks.rows import Row
from adafuse.storage.files import write_text


@dataclass(frozen=True, slots=True)
class PreparedRow:
    """A row with its prompt; its `question` is the prompt without few-shot examples.

    `shot` rows are few-shot examples of the prompt, to be left out of a strict score.
    """

    id: str
    prompt: str
    question: str
    answers: tuple[str, ...] = ()
    shard: int = 0
    shot: bool = False

    @property
    def prompt_sha256(self) -> str:
        """Which prompt a trace belongs to."""
        return hashlib.sha256(self.prompt.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Prepared:
    """All rows of a benchmark in file order; `duplicates` ids occurred before in the file."""

    rows: tuple[PreparedRow, ...]
    duplicates: int = 0

    def shard(self, number: int) -> tuple[PreparedRow, ...]:
        """Return the rows of one shard in file order."""
        return tuple(row for row in self.rows if row.shard == number)


def prepare(
    rows: Iterable[Row],
    template: PromptTemplate,
    *,
    shards: int,
    few_shot_keys: frozenset[str] = frozenset(),
) -> tuple[PreparedRow, ...]:
    """Put each question into its prompt, deal the rows to shards and mark few-shot examples.

    `few_shot_keys` are the keys of the questions to mark; see `question_key`.
    """
    return tuple(
        PreparedRow(
            row.id,
            template.prompt(row.question),
            template.question(row.question),
            row.answers,
            shard_of(row.id, shards),
            question_key(row.question) in few_shot_keys,
        )
        for row in rows
    )


def shard_of(identifier: str, shards: int) -> int:
    """Return the shard of a row: it depends on its id and the number of shards, nothing else."""
    return int.from_bytes(hashlib.sha256(identifier.encode()).digest()[:8]) % shards


def write_prepared(path: Path, rows: Iterable[PreparedRow]) -> None:
    """Write the rows of a benchmark as JSON lines."""
    _write(path, rows, ("id", "shard", "prompt", "prompt_sha256", "answers", "shot", "task"))


def write_shard(path: Path, rows: Iterable[PreparedRow]) -> None:
    """Write what decoding reads; without answers, so that a corrected one decodes nothing again."""
    _write(path, rows, ("id", "prompt", "prompt_sha256", "task"))


def read_prepared(path: Path) -> tuple[PreparedRow, ...]:
    """Read rows of either function; those for decoding have neither answers nor shard."""
    return tuple(
        PreparedRow(
            line["id"],
            line["prompt"],
            line["task"],
            tuple(line.get("answers", ())),
            line.get("shard", 0),
            line.get("shot", False),
        )
        for line in map(json.loads, filter(None, path.read_bytes().split(b"\n")))
    )


def _write(path: Path, rows: Iterable[PreparedRow], keys: Sequence[str]) -> None:
    # In the files, the question is called "task".
    lines = (
        {key: getattr(row, "question" if key == "task" else key) for key in keys} for row in rows
    )
    write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
