"""A benchmark as its configuration says: its source file, rows, few-shot examples and prompts."""

import dataclasses
import hashlib
import json
import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from adafuse.benchmarks.description import Described, describe
from adafuse.benchmarks.prompts import FewShotFile, make_prompt_template, read_few_shot
from adafuse.benchmarks.records import as_written, at_row, read_records
from adafuse.benchmarks.rows import (
    PLAIN,
    Row,
    read_ids,
    read_rows,
    row_id,
    row_of,
    sample,
    with_ids,
)
from adafuse.benchmarks.shards import Prepared, prepare
from adafuse.config.benchmarks import PIN, SourceConfig
from adafuse.config.config import Config
from adafuse.errors import UserError
from adafuse.metrics.registry import SCORERS
from adafuse.models.files import folder_digest
from adafuse.models.hub import hub_answers
from adafuse.storage.files import write_text
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.stamps import is_damaged, write_stamp

logger = logging.getLogger(__name__)


def fetch(source: SourceConfig, out: Path) -> int:
    """Load a dataset, write its rows as JSON lines in the published form, return their number."""
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
    """Yield the records of a configuration of a dataset, each with its place for errors.

    The cache of `datasets` knows the files of a folder by their times, and archives by their names.
    """
    import datasets

    assert source.dataset is not None, "checked with the configuration"
    datasets.disable_progress_bars()
    where = {"split": source.split, "revision": source.revision}
    parts = [f"{key} {value}" for key, value in {"config": config, **where}.items() if value]
    named = f"dataset {source.dataset!r} ({', '.join(parts)})"
    folder = Path(source.dataset)
    fresh = TemporaryDirectory() if folder.is_dir() else nullcontext()
    try:
        with fresh as cache, warnings.catch_warnings():
            warnings.filterwarnings("error", "Length of header")  # of pandas, which leaves out more
            named_by = {"revision": source.revision, "cache_dir": cache}
            builder = datasets.load_dataset_builder(source.dataset, config, **named_by)
            if folder.is_dir():
                files = builder.config.data_files or {}
                _check_inside(folder, files)
                _check_formats(folder, files)
                if plain := _plain_files(builder, source.split):
                    for file in plain:
                        yield from read_records(Path(file), f"file of {named}")
                    return
            columns = _text_columns(builder, source.split)
            records = datasets.load_dataset(
                source.dataset, config, split=source.split, **named_by, **columns
            )
            _check_texts(records.features, source, named)
            for number, record in enumerate(records):
                yield at_row(named, number), as_written(record, records.features)
    except (OSError, ValueError, RuntimeError, Warning, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if "Length of header" in f"{reason} {error.__cause__}":
            reason = "rows of a CSV file have more fields than its header; quote them"
        if "OfflineModeIsEnabled" in reason:
            reason = "it is not on this machine, and the hub is not asked"
        advice = (
            "check its config, its split and its files"
            if Path(source.dataset).is_dir()
            else "check its names and the network (and HF_TOKEN for a gated one), or plan once"
            " where there is a network and set HF_HUB_OFFLINE=1, or name a local `file` as source"
        )
        raise UserError(f"{named} cannot be loaded ({reason}); {advice}") from None


def _plain_files(builder: Any, split: str | None) -> Sequence[str]:
    """Return the files of a split if they are JSON or CSV without settings or types of a card.

    They are read as a `file` is: `datasets` takes numbers for texts and texts for numbers where a
    column has both, and a field too many for the name of its row.
    """
    files: Sequence[str] = (builder.config.data_files or {}).get(split, ())
    endings = {Path(file.removesuffix(".gz")).suffix.lower() for file in files}
    if len(endings) != 1 or not endings <= {".csv", ".tsv", ".json", ".jsonl"}:
        return ()
    own = dict(builder.config.__dict__)
    if endings == {".tsv"} and own.get("sep") == "\t":
        own["sep"] = ","
    plain = {
        each.name: each.default
        for each in dataclasses.fields(builder.config)
        if each.default_factory is dataclasses.MISSING and each.name not in _NAMES_OF_CONFIGS
    }
    changed = any(own[name] != value for name, value in plain.items())
    return () if changed or builder.info.features is not None else files


_NAMES_OF_CONFIGS = ("name", "version", "data_dir", "data_files", "description")


def _check_formats(folder: Path, used: Mapping[str, Sequence[str]]) -> None:
    """Refuse a folder whose files of another format `datasets` leaves out."""
    from datasets.data_files import DataFilesDict, EmptyDatasetError, get_data_patterns

    card = folder / "README.md"
    if card.is_file() and "data_files:" in card.read_text(encoding="utf-8", errors="replace"):
        return  # it says which
    with suppress(EmptyDatasetError):
        found = DataFilesDict.from_patterns(get_data_patterns(str(folder)), base_path=str(folder))
        left = sorted({*chain(*found.values())} - {*chain(*used.values())})
        if odd := [file for file in left if re.search(r"\.(jsonl?|[ct]sv|parquet)(\.gz)?$", file)]:
            raise UserError(
                f"dataset {str(folder)!r} has files of several formats, of which only one is read:"
                f" {os.path.relpath(odd[0], folder)!r} would be left out; put it elsewhere"
            )


def _check_texts(features: Mapping[str, Any], source: SourceConfig, named: str) -> None:
    """Refuse a column of texts and numbers, of which `datasets` makes texts numbers."""
    read = " ".join(filter(None, (source.fields.question, source.fields.answer, source.fields.id)))
    for name, feature in features.items():
        if type(feature).__name__ == "Json" and re.search(rf"\b{re.escape(name)}\b", read):
            raise UserError(
                f"{named}: column {name!r} has texts and other values, which `datasets` would"
                " change; name its file as `file`"
            )


def _text_columns(builder: Any, split: str | None) -> dict[str, Any]:
    """Return by what all columns of CSV are text: pandas reads 007 as 7, and NA as nothing.

    The first of more fields than the header has would be the name of the row, and shift the others.
    """
    import datasets
    from datasets.packaged_modules.csv.csv import CsvConfig

    if not isinstance(builder.config, CsvConfig):
        return {}
    if builder.config.index_col is None:
        builder.config.index_col = False
    whole = split and split.partition("[")[0]
    first: dict[str, Any] = next(iter(builder.as_streaming_dataset(whole)), {})
    texts = datasets.Features({name: datasets.Value("string") for name in first})
    own = {"index_col": builder.config.index_col, "keep_default_na": False}
    return {"features": texts or None, **own}


def _check_inside(folder: Path, data_files: Mapping[str, Sequence[str]]) -> None:
    """Refuse what a dataset's card names elsewhere, where a change would not be seen."""
    for file in chain.from_iterable(data_files.values()):
        path = Path(os.path.abspath(file.rpartition("::")[2]))  # of a file in an archive
        place = Path(os.path.abspath(folder))
        if not path.is_relative_to(place) or re.search(_UNREAD, str(path.relative_to(place))):
            raise UserError(
                f"dataset {str(folder)!r} reads {file!r}, which is not among its own files; put it"
                " into its folder"
            )


_UNREAD = r"(^|/)\.(git|cache)/"  # of programs that bring datasets, whatever they hold
_FORM = 3  # counted up when fetched rows are written otherwise, so that they are fetched again


class UnavailableSourceError(UserError):
    """A hub dataset that cannot be loaded here and now; a plan without it is still of use."""


def source_file(config: Config, benchmark: str) -> Path:
    """Return the file of a benchmark's rows; a dataset is fetched if it was not yet."""
    source = config.benchmarks[benchmark].source
    if source.file is not None:
        return Path(source.file)
    digest = _source_digest(source)
    path = _fetched_file(config, source, digest)
    if (damaged := is_damaged(path)) or not path.is_file():
        if damaged:
            logger.warning("%s was changed or damaged", path)
        if (reason := unpinned_source(config, benchmark)) is not None:
            raise UnavailableSourceError(reason)
        _fetch(source, path)
        if _source_digest(source) != digest:
            path.unlink()
            raise UserError(f"dataset {source.dataset!r} was changed while it was read; run again")
        write_stamp(path, digest)
    return path


def is_fetched(config: Config, benchmark: str) -> bool:
    """Whether the rows of a benchmark are in a file already."""
    source = config.benchmarks[benchmark].source
    if source.file is not None:
        return True
    path = _fetched_file(config, source, _source_digest(source))
    return path.is_file() and not is_damaged(path)


def unpinned_source(config: Config, benchmark: str) -> str | None:
    """Return why the hub dataset of a benchmark is not fetched if it has no revision."""
    source = config.benchmarks[benchmark].source
    if source.dataset is None or source.revision or Path(source.dataset).is_dir():
        return None
    return f"benchmarks.{benchmark}: hub dataset {source.dataset!r} has no revision; {PIN}"


def _fetched_file(config: Config, source: SourceConfig, digest: str) -> Path:
    return ResultsLayout(config.results).source(f"{_name(source)}-{digest}")


def _source_digest(source: SourceConfig) -> str:
    """Return the digest of everything that decides the rows: of a folder, its card, too."""
    folder = Path(str(source.dataset))
    content = folder_digest(folder, without=_UNREAD) if folder.is_dir() else None
    values = source.model_dump(exclude={"dataset"} if content else set())
    if source.fields.answer_separator is None:  # which the digests of earlier versions do not have
        del values["fields"]["answer_separator"]
    parts = [_FORM, content, values]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _name(source: SourceConfig) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", Path(str(source.dataset)).name)


def _fetch(source: SourceConfig, path: Path) -> None:
    """Fetch in a process of its own, so that planning never loads `datasets`."""
    local = Path(str(source.dataset)).is_dir()
    online = not local and hub_answers()
    cache = "this machine's cache, as the hub cannot be asked"
    where = "its folder" if local else "the hub" if online else cache
    logger.warning("reading dataset %s from %s, once; it may take minutes", source.dataset, where)
    step = ["step", "fetch", "--source", source.model_dump_json(), "--out", str(path)]
    environment = {**os.environ, **({} if online else {"HF_HUB_OFFLINE": "1"})}
    done = subprocess.run(
        [sys.executable, "-m", "adafuse", *step], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        lines = done.stderr.strip().split("\n")
        # Threads of `datasets` may say more while the process ends.
        told = [line for line in lines if line.startswith("error: ")] or lines
        reason = told[-1].removeprefix("error: ")
        kind = UserError if local else UnavailableSourceError
        raise kind(reason or f"{source.dataset!r} cannot be fetched")


def prepare_benchmark(config: Config, benchmark: str) -> Prepared:
    """Read and choose the rows of a benchmark, put them into prompts and deal them to shards."""
    task, few_shot = config.benchmarks[benchmark], few_shot_file(config, benchmark)
    rows = benchmark_rows(config, benchmark)
    for row in rows:
        SCORERS[task.scorer].check_answers(
            f"row {row.id!r} of benchmark {benchmark!r}", row.answers
        )
    template = make_prompt_template(task.prompt, few_shot, task.prompt_layout)
    marked = few_shot.questions() if few_shot and task.exclude_shots else frozenset()
    prepared = prepare(rows, template, shards=task.shards, few_shot_keys=marked)
    if empty := task.shards - len({row.shard for row in prepared}):
        raise UserError(
            f"benchmarks.{benchmark}: {len(rows)} rows leave {empty} of {task.shards} shards empty;"
            " use fewer shards"
        )
    if all(row.shot for row in prepared):
        raise UserError(
            f"benchmarks.{benchmark}: every row is a few-shot example of the prompt, so none is"
            " left to score; use other rows, or exclude_shots: false"
        )
    return Prepared(prepared, sum(row.renamed for row in rows))


def benchmark_rows(config: Config, benchmark: str) -> tuple[Row, ...]:
    """Return the rows that a benchmark is made of, in the order of its source."""
    task, owner = config.benchmarks[benchmark], f"benchmarks.{benchmark}"
    # A dataset's rows are written in the published form when they are fetched.
    fields = task.source.fields if task.source.file is not None else PLAIN
    rows = read_rows(source_file(config, benchmark), task.limit, fields)
    if (ids := read_ids(Path(task.ids_file)) if task.ids_file else task.ids) is not None:
        return with_ids(rows, ids, owner)
    if (part := task.sample) is None:
        return rows
    return sample(rows, part.size, part.seed, owner, skip=part.skip)


def few_shot_file(config: Config, benchmark: str) -> FewShotFile | None:
    task = config.benchmarks[benchmark]
    if task.shots is None:
        return None
    return read_few_shot(Path(task.shots.file), task.prompt, task.shots.count)


def describe_benchmarks(config: Config) -> list[Described]:
    lines = []
    for name in config.main_benchmarks:
        description = describe(benchmark_rows(config, name), few_shot_file(config, name))
        lines.append(Described(name, description, config.benchmarks[name].paper))
    return lines
