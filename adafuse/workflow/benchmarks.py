"""A benchmark as its configuration says: its source file, rows, few-shot examples and prompts."""

import hashlib
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from adafuse.benchmarks.description import Described, describe
from adafuse.benchmarks.prompts import FewShotFile, make_prompt_template, read_few_shot
from adafuse.benchmarks.rows import (
    PLAIN,
    Row,
    at_row,
    read_ids,
    read_rows,
    row_id,
    row_of,
    sample,
    with_ids,
)
from adafuse.benchmarks.shards import Prepared, PreparedRow, prepare, shard_of
from adafuse.config.benchmarks import PIN, SourceConfig
from adafuse.config.config import Config
from adafuse.errors import UserError
from adafuse.files import write_text
from adafuse.models.files import content_digest
from adafuse.options import parse
from adafuse.workflow.layout import ResultsLayout

logger = logging.getLogger(__name__)


def fetch(source: SourceConfig, out: Path) -> int:
    """Load a dataset, write its rows as JSON lines in the published form, return their number.

    Raises:
        UserError: it cannot be loaded, or a row has not the fields that it should.
    """
    rows = [
        {"id": row.id, "question": row.question, "answer": list(row.answers)}
        for row in _fetched(source)
    ]
    write_text(out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return len(rows)


def _fetched(source: SourceConfig) -> Iterator[Row]:
    if source.answer_config is None:
        for where, record in _load(source, source.config):
            yield row_of(record, source.fields, where)
        return
    # Questions and answers of a translation benchmark are rows of the same ids.
    answers: dict[str | None, Mapping[str, Any]] = {}
    for where, record in _load(source, source.answer_config):
        name = row_id(record, source.fields, where)
        if name in answers:
            raise UserError(f"{where}: id {name!r} occurs twice; rows cannot be joined by it")
        answers[name] = record
    for where, record in _load(source, source.config):
        if (name := row_id(record, source.fields, where)) not in answers:
            raise UserError(f"{where}: configuration {source.answer_config!r} has no row {name!r}")
        yield row_of(record, source.fields, where, answers_from=answers[name])


def _load(source: SourceConfig, config: str | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the records of a configuration of a dataset, each after its place for errors."""
    import datasets
    from huggingface_hub.errors import HfHubHTTPError

    assert source.dataset is not None, "checked with the configuration"
    datasets.disable_progress_bars()
    parts = {"config": config, "split": source.split, "revision": source.revision}
    details = ", ".join(f"{key} {value}" for key, value in parts.items() if value is not None)
    named = f"dataset {source.dataset!r} ({details})"
    try:
        records = datasets.load_dataset(
            source.dataset, config, split=source.split, revision=source.revision
        )
    except (
        OSError,
        ValueError,
        RuntimeError,
        HfHubHTTPError,
        datasets.exceptions.DatasetsError,
    ) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        advice = (
            "check its config, its split and its files"
            if Path(source.dataset).is_dir()
            else "check its names and the network (and HF_TOKEN for a gated one), or plan once"
            " where there is a network and set HF_HUB_OFFLINE=1, or name a local `file` as source"
        )
        raise UserError(f"{named} cannot be loaded ({reason}); {advice}") from None
    for number, record in enumerate(records):
        yield at_row(named, number), record


def fetch_source(text: str, out: Path) -> int:
    """Write the rows of a source that is given as JSON; return their number.

    Raises:
        UserError: it is not the source of a dataset, or cannot be loaded.
    """
    try:
        values = json.loads(text)
        source = parse(SourceConfig, values, "--source")
    except (ValueError, TypeError):
        raise UserError(f"--source {text!r} is not a `source` section as JSON") from None
    if source.dataset is None:
        raise UserError(f"--source {text!r} names no `dataset`; add it")
    return fetch(source, out)


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
    if path.is_file():
        return path
    if source.revision is None and not Path(str(source.dataset)).is_dir():
        raise UnavailableSourceError(
            f"benchmarks.{benchmark}: hub dataset {source.dataset!r} has no revision; {PIN}"
        )
    _fetch(source, path)
    return path


def _name(source: SourceConfig) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", Path(str(source.dataset)).name)


def _key(source: SourceConfig) -> str:
    """Return a digest of everything that decides the rows, a folder's content included."""
    content = content_digest(str(source.dataset))
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


def prepare_benchmark(config: Config, benchmark: str) -> Prepared:
    """Read and choose the rows of a benchmark, put them into prompts and deal them to shards.

    Raises:
        UserError: a bad row, an unknown id, a bad shots file, or a shard that gets no rows.
    """
    rows, shards = benchmark_rows(config, benchmark), config.benchmarks[benchmark].shards
    prepared = _prepare(config, benchmark, rows)
    if empty := shards - len({row.shard for row in prepared}):
        said = f"{len(rows)} rows leave {empty} of {shards} shards empty"
        raise UserError(f"benchmarks.{benchmark}: {said}; use fewer shards")
    return Prepared(prepared, sum(row.renamed for row in rows))


def prepare_shard(config: Config, benchmark: str, shard: int) -> tuple[PreparedRow, ...]:
    """Prepare the rows of one shard; the others are only read.

    Raises:
        UserError: a bad row, an unknown id, or a bad shots file.
    """
    rows, shards = benchmark_rows(config, benchmark), config.benchmarks[benchmark].shards
    own = tuple(row for row in rows if shard_of(row.id, shards) == shard)
    return _prepare(config, benchmark, own)


def _prepare(config: Config, benchmark: str, rows: tuple[Row, ...]) -> tuple[PreparedRow, ...]:
    task, few_shot = config.benchmarks[benchmark], few_shot_file(config, benchmark)
    template = make_prompt_template(task.prompt, few_shot, task.frame)
    marked = few_shot.questions() if few_shot and task.exclude_shots else frozenset()
    return prepare(rows, template, shards=task.shards, few_shot_keys=marked)


def benchmark_rows(config: Config, benchmark: str) -> tuple[Row, ...]:
    """Return the rows that a benchmark is made of, in the order of its source."""
    task, owner = config.benchmarks[benchmark], f"benchmarks.{benchmark}"
    # A dataset's rows are written in the published form when they are fetched.
    fields = task.source.fields if task.source.file is not None else PLAIN
    rows = read_rows(source_file(config, benchmark), task.limit, fields)
    if (ids := read_ids(Path(task.ids_file)) if task.ids_file else task.ids) is not None:
        return with_ids(rows, ids, owner)
    return sample(rows, task.sample.size, task.sample.seed, owner) if task.sample else rows


def few_shot_file(config: Config, benchmark: str) -> FewShotFile | None:
    """Return the instruction and few-shot examples of a benchmark, if it has some."""
    task = config.benchmarks[benchmark]
    if task.shots is None:
        return None
    return read_few_shot(Path(task.shots.file), task.prompt, task.shots.count)


def describe_benchmarks(config: Config) -> list[Described]:
    """Return the lines of the table of dataset statistics."""
    return [
        Described(
            name,
            describe(benchmark_rows(config, name), few_shot_file(config, name)),
            config.benchmarks[name].paper,
        )
        for name in config.main_benchmarks
    ]
