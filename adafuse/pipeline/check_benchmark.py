"""What no single field of a benchmark's configuration can know."""

import re
from pathlib import Path

from adafuse.benchmarks.template import check_template
from adafuse.errors import UserError
from adafuse.pipeline.config import BenchmarkConfig, SourceConfig
from adafuse.scoring.tasks import task_named

_TABLE_COLUMNS = ("run", "method", "models", "macro_average")
_CELL_ENDINGS = ("_low", "_high", "_n")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def check_benchmark(name: str, benchmark: BenchmarkConfig) -> None:
    """Check a benchmark against itself and the files that it names.

    Raises:
        UserError: the first thing that is wrong.
    """
    owner = f"benchmarks.{name}"
    if name in _TABLE_COLUMNS or name.endswith(_CELL_ENDINGS):
        raise UserError(f"benchmarks: {name!r} is also a column of the table; rename it")
    check_template(benchmark.prompt, owner)
    task_named(benchmark.metric, owner)
    _check_source(benchmark.source, owner)
    shots = benchmark.shots.file if benchmark.shots else None
    for file in (benchmark.source.file, shots, benchmark.ids_file):
        if file is not None and not Path(file).is_file():
            raise UserError(f"{owner}: file {file!r} does not exist; check its path")
    _check_choice(benchmark, owner)


def _check_choice(benchmark: BenchmarkConfig, owner: str) -> None:
    given = [key for key in ("ids", "ids_file") if getattr(benchmark, key) is not None]
    others = [key for key in ("limit", "sample") if getattr(benchmark, key) is not None]
    if len(given) > 1 or (given and others):
        both = " and ".join([*given, *others][:2])
        raise UserError(f"{owner}: {both} choose rows in two ways; give one of them")


def _check_source(source: SourceConfig, owner: str) -> None:
    if (source.file is None) == (source.dataset is None):
        raise UserError(f"{owner}.source needs a `file` or a `dataset`, one of them")
    if source.file is not None:
        _check_plain_file(source, owner)
    elif source.split is None:
        raise UserError(f"{owner}.source has no 'split'; add it, for instance split: test")
    elif source.answer_config is not None and source.fields.id is None:
        raise UserError(f"{owner}.source: answer_config joins rows by id; name fields.id")
    else:
        _check_place(str(source.dataset), source.revision, owner)


def _check_plain_file(source: SourceConfig, owner: str) -> None:
    for key in ("config", "answer_config", "split", "revision"):
        if getattr(source, key) is not None:
            raise UserError(f"{owner}.source: {key} is for a dataset, not for a file; remove it")


def _check_place(dataset: str, revision: str | None, owner: str) -> None:
    if Path(dataset).is_dir():
        if revision is not None:
            raise UserError(
                f"{owner}: revision {revision!r} is for hub datasets, but {dataset!r} is a folder;"
                " remove it"
            )
    elif dataset.startswith((".", "/", "~")) or dataset.count("/") != 1:
        raise UserError(
            f"{owner}: {dataset!r} is not a folder; give a dataset folder or a hub id org/name"
        )
    elif revision is not None and not _COMMIT.fullmatch(revision):
        raise UserError(
            f"{owner}: hub dataset {dataset!r} has revision {revision!r}, which is no commit; pin"
            " it with source: {revision: COMMIT}, 40 hexadecimal digits from the history of its"
            " files on the hub"
        )
