"""A benchmark as its configuration says: rows, shots, prompts, and the figures that describe it."""

from pathlib import Path

from adafuse.benchmarks.describe import describe
from adafuse.benchmarks.describe_table import Described, PaperFigures
from adafuse.benchmarks.frames import make_frame
from adafuse.benchmarks.prepare import Prepared, prepare
from adafuse.benchmarks.rows import Rows, read_rows
from adafuse.benchmarks.select import read_ids, sample, with_ids
from adafuse.benchmarks.shots import Shots, read_shots
from adafuse.pipeline.config import BenchmarkConfig, Config
from adafuse.pipeline.sources import source_fields, source_file


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
