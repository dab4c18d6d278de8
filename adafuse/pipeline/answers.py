"""What each model wrote on its own for the rows of a shard, for methods that start from that."""

from collections.abc import Sequence
from pathlib import Path

from adafuse.errors import UserError
from adafuse.records import Answer
from adafuse.traces.table import read_metadata, read_rows


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
