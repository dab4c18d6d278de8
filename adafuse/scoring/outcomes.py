"""What became of each example: the scored text, its gold answers and a value."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Example:
    """What a protocol sees of a row: the answers and the text, "" where there is none."""

    id: str
    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A scored example.

    `value` is 1.0 or 0.0 where answers are right or wrong, the sentence's BLEU (0 to 100, effective
    order) in translation. `text` and `answers` of a translation are stripped and NFC.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    value: float


def write_outcomes(path: Path, outcomes: Sequence[Outcome], metadata: dict[str, Any]) -> None:
    """Write outcomes as Parquet: id, value, hypothesis, references."""
    import pyarrow as pa

    from adafuse.workflow.traces import write_table

    columns = [
        pa.field("id", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("hypothesis", pa.string()),
        pa.field("references", pa.list_(pa.string())),
    ]
    rows = [
        {"id": o.id, "value": o.value, "hypothesis": o.text, "references": list(o.answers)}
        for o in outcomes
    ]
    write_table(path, columns, rows, metadata)


def read_outcomes(path: Path) -> tuple[Outcome, ...]:
    """Read what `write_outcomes` wrote.

    Raises:
        UserError: no readable Parquet file, or one of another form.
    """
    from adafuse.workflow.traces import read_rows

    rows = read_rows(path, ["id", "value", "hypothesis", "references"])
    return tuple(
        Outcome(row["id"], row["hypothesis"], tuple(row["references"]), row["value"])
        for row in rows
    )
