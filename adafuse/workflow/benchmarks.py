"""A benchmark as its configuration says: its source file, rows, few-shot examples and prompts."""

import hashlib
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from pydantic import ValidationError

from adafuse.benchmarks.description import Described, PaperFigures, describe
from adafuse.benchmarks.prompts import Shots, make_frame, read_shots
from adafuse.benchmarks.rows import (
    PLAIN,
    Fields,
    Row,
    Rows,
    at_row,
    read_ids,
    read_rows,
    row_id,
    row_of,
    sample,
    with_ids,
)
from adafuse.benchmarks.shards import Prepared, prepare
from adafuse.config.benchmarks import BenchmarkConfig, SourceConfig
from adafuse.config.config import Config
from adafuse.errors import UserError
from adafuse.files import write_text
from adafuse.models.files import model_identity
from adafuse.workflow.layout import ResultsLayout

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


_FORM = 1
"""Counted up when fetched rows are written otherwise, so that they are fetched again."""


class UnavailableSourceError(UserError):
    """A dataset that cannot be loaded here and now; a plan without it is still of use."""


def source_file(config: Config, benchmark: str) -> Path:
    """Return the file of a benchmark's rows; a dataset that was not fetched yet is.

    Raises:
        UnavailableSourceError: a dataset of the hub cannot be loaded.
        UserError: a folder's cannot, or has not the rows that it should.
    """
    source = config.benchmarks[benchmark].source
    if source.file is not None:
        return Path(source.file)
    path = ResultsLayout(config.results).source(f"{_name(source)}-{_key(source)}")
    if not path.is_file():
        _check_pinned(source, f"benchmarks.{benchmark}")
        _fetch(source, path)
    return path


def _check_pinned(source: SourceConfig, owner: str) -> None:
    if source.revision is None and not Path(str(source.dataset)).is_dir():
        raise UnavailableSourceError(
            f"{owner}: hub dataset {source.dataset!r} has no revision; pin it with source:"
            " {revision: COMMIT}, 40 hexadecimal digits from the history of its files on the hub"
        )


def source_fields(source: SourceConfig) -> Fields:
    """Return the fields of the file that `source_file` names."""
    return Fields(**source.fields.model_dump()) if source.file is not None else PLAIN


def _name(source: SourceConfig) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", Path(str(source.dataset)).name)


def _key(source: SourceConfig) -> str:
    """Return a digest of everything that decides the rows, a folder's content included."""
    content = model_identity(str(source.dataset), None).content
    parts = [_FORM, content, source.model_dump(exclude={"dataset"} if content else set())]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _fetch(source: SourceConfig, path: Path) -> None:
    """Fetch in a process of its own, so that planning never loads `datasets`."""
    logger.warning("fetching dataset %s, once; this may take minutes", source.dataset)
    run = "from adafuse.cli.main import main; main()"
    step = ["step", "fetch", "--source", source.model_dump_json(), "--out", str(path)]
    environment = {**os.environ, **({} if _hub_answers() else {"HF_HUB_OFFLINE": "1"})}
    done = subprocess.run(
        [sys.executable, "-c", run, *step], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        said = done.stderr.strip().split("\n")[-1]
        kind = UserError if Path(str(source.dataset)).is_dir() else UnavailableSourceError
        raise kind(said.removeprefix("error: ") or f"{source.dataset!r} cannot be fetched")


@cache
def _hub_answers() -> bool:
    """Ask once: without a network every dataset would be tried again and again for half a minute.

    What was downloaded earlier is found offline, too.
    """
    from huggingface_hub.constants import ENDPOINT

    try:
        with urlopen(ENDPOINT, timeout=5):
            return True
    except HTTPError:
        return True
    except OSError:
        return False


def fetch_source(text: str, out: Path) -> int:
    """Write the rows of a source that is given as JSON; return their number.

    Raises:
        UserError: it is not the source of a dataset, or cannot be loaded.
    """
    try:
        source = SourceConfig.model_validate_json(text)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UserError(f"--source {text!r} is no `source` section ({reason})") from None
    if source.dataset is None or source.split is None:
        raise UserError(f"--source {text!r} names no `dataset` and `split`; add them")
    named = {key: getattr(source, key) for key in ("config", "answer_config", "revision")}
    fields = Fields(**source.fields.model_dump())
    return fetch(DatasetSource(source.dataset, source.split, fields, **named), out)


def prepare_benchmark(config: Config, benchmark: str) -> Prepared:
    """Read, choose, frame and deal the rows of a benchmark.

    Raises:
        UserError: a bad row, an unknown id, a bad shots file, or a shard that gets no rows.
    """
    task, shots = config.benchmarks[benchmark], benchmark_shots(config, benchmark)
    marked = shots.questions() if shots and task.exclude_shots else frozenset()
    return prepare(
        benchmark_rows(config, benchmark),
        make_frame(task.prompt, shots, task.frame),
        shards=task.shards,
        owner=f"benchmarks.{benchmark}",
        shots=marked,
    )


def benchmark_rows(config: Config, benchmark: str) -> Rows:
    """Return the rows that a benchmark is made of, in the order of its source."""
    task, owner = config.benchmarks[benchmark], f"benchmarks.{benchmark}"
    rows = read_rows(source_file(config, benchmark), task.limit, source_fields(task.source))
    if (ids := _ids(task)) is not None:
        return with_ids(rows, ids, owner)
    return sample(rows, task.sample.size, task.sample.seed, owner) if task.sample else rows


def _ids(task: BenchmarkConfig) -> tuple[str, ...] | None:
    return read_ids(Path(task.ids_file)) if task.ids_file else task.ids


def benchmark_shots(config: Config, benchmark: str) -> Shots | None:
    """Return the worked examples of a benchmark."""
    task = config.benchmarks[benchmark]
    if task.shots is None:
        return None
    return read_shots(Path(task.shots.file), task.prompt, task.shots.count)


def describe_benchmarks(config: Config) -> list[Described]:
    """Return the lines of the table of dataset statistics."""
    return [
        Described(
            name,
            describe(benchmark_rows(config, name).rows, benchmark_shots(config, name)),
            PaperFigures(**config.benchmarks[name].paper.model_dump()),
        )
        for name in config.main_benchmarks
    ]
