"""What the explorer's pages hold: benchmarks, runs and models, for their menus."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from adafuse.explorer.benchmark_data import QUESTIONS, ROUNDS, TEXTS
from adafuse.files import write_text

_FILE, _CALL = "manifest.js", "adafuse.manifest = "


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run's method and models by name; `tau` is None where the method has no threshold."""

    method: str
    models: tuple[str, ...]
    tau: float | None = None


@dataclass(frozen=True, slots=True)
class BenchmarkEntry:
    """A benchmark of `n` examples and the runs on it; an accuracy is right or wrong per example."""

    name: str
    n: int
    runs: tuple[str, ...]
    accuracy: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """All benchmarks, and all runs that rows may come from; models give the order of colours.

    `note` is what a reader must know before anything else.
    """

    benchmarks: Sequence[BenchmarkEntry]
    runs: Mapping[str, RunEntry]
    models: Sequence[str]
    protocols: Sequence[str]
    note: str | None = None


def has_manifest(folder: Path) -> bool:
    """Say whether a folder holds the data of a report."""
    return (folder / _FILE).is_file()


def read_benchmarks(folder: Path) -> list[str]:
    """Return the benchmarks of the report whose data lie in a folder; none without a report."""
    if not has_manifest(folder):
        return []
    value = (folder / _FILE).read_text(encoding="utf-8").removeprefix(_CALL).removesuffix(";\n")
    return [benchmark["name"] for benchmark in json.loads(value)["benchmarks"]]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it where explorer.html looks for it."""
    sizes = {"questions": QUESTIONS, "texts": TEXTS, "rounds": ROUNDS}
    value = json.dumps({**asdict(manifest), "sizes": sizes})
    write_text(folder / _FILE, f"{_CALL}{value};\n")
