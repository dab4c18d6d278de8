"""Rows of a Hugging Face dataset, from the hub or from a folder in its layout, written once."""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adafuse.benchmarks.fields import Fields, Row, row_id, row_of
from adafuse.benchmarks.records import at_row
from adafuse.errors import UserError
from adafuse.traces.atomic import write_text

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DatasetSource:
    """A split of a dataset.

    `answer_config` is a second configuration that holds the answers, in rows of the same ids: one
    language of a translation benchmark beside the other.
    """

    dataset: str
    split: str
    fields: Fields
    config: str | None = None
    answer_config: str | None = None
    revision: str | None = None


def fetch(source: DatasetSource, out: Path) -> int:
    """Load a dataset, write its rows as JSON lines in the published form, return their number.

    Raises:
        UserError: it cannot be loaded, or a row has not the fields that it should.
    """
    rows = list(_rows(source))
    write_text(out, "".join(_line(row) for row in rows))
    return len(rows)


def _line(row: Row) -> str:
    value = {"id": row.id, "question": row.question, "answer": list(row.answers)}
    return json.dumps(value, ensure_ascii=False) + "\n"


def _rows(source: DatasetSource) -> Iterator[Row]:
    answers = _answers(source, source.answer_config) if source.answer_config else None
    for where, record in _records(source, source.config):
        yield row_of(
            record, source.fields, where, answers_from=_partner(record, source, answers, where)
        )


def _partner(
    record: Mapping[str, Any],
    source: DatasetSource,
    answers: Mapping[str | None, Mapping[str, Any]] | None,
    where: str,
) -> Mapping[str, Any] | None:
    if answers is None:
        return None
    if (name := row_id(record, source.fields, where)) not in answers:
        raise UserError(f"{where}: configuration {source.answer_config!r} has no row {name!r}")
    return answers[name]


def _answers(source: DatasetSource, config: str) -> dict[str | None, Mapping[str, Any]]:
    found: dict[str | None, Mapping[str, Any]] = {}
    for where, record in _records(source, config):
        name = row_id(record, source.fields, where)
        if name in found:
            raise UserError(f"{where}: id {name!r} occurs twice; rows cannot be joined by it")
        found[name] = record
    return found


def _records(source: DatasetSource, config: str | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    name = f"dataset {source.dataset!r} ({_details(source, config)})"
    for number, record in enumerate(_load(source, config, name)):
        yield at_row(name, number), record


def _details(source: DatasetSource, config: str | None) -> str:
    parts = {"config": config, "split": source.split, "revision": source.revision}
    return ", ".join(f"{key} {value}" for key, value in parts.items() if value is not None)


def _load(source: DatasetSource, config: str | None, name: str) -> Any:
    import datasets
    from huggingface_hub.errors import HfHubHTTPError

    datasets.disable_progress_bars()
    wanted = {"name": config, "split": source.split, "revision": source.revision}
    try:
        return datasets.load_dataset(source.dataset, **wanted)
    except (
        OSError,
        ValueError,
        RuntimeError,
        HfHubHTTPError,
        datasets.exceptions.DatasetsError,
    ) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{name} cannot be loaded ({reason}); {_advice(source)}") from None


def _advice(source: DatasetSource) -> str:
    if Path(source.dataset).is_dir():
        return "check its config, its split and its files"
    return (
        "check its names and the network (and HF_TOKEN for a gated one), or plan once where there"
        " is a network and set HF_HUB_OFFLINE=1, or name a local `file` as source"
    )
