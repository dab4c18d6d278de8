"""The explorer over traces of `adafuse generate`, which belong to no benchmark."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adafuse.errors import UserError
from adafuse.explorer.benchmark_data import Question, RunFiles, write_benchmark
from adafuse.explorer.manifest import BenchmarkEntry, Manifest, RunEntry, write_manifest
from adafuse.explorer.pages import write_explorer
from adafuse.report.build import DATA
from adafuse.report.stored import tau_of
from adafuse.traces.table import read_metadata, read_rows

PROMPTS = "prompts"
"""What stands in place of a benchmark's name."""


def write_loose_report(traces: Sequence[Path], folder: Path) -> None:
    """Write the explorer over traces, each a run; those of the same prompts go side by side.

    Raises:
        UserError: a file that is no trace of `generate`, two of one name, or other ids in each.
    """
    names = [path.stem for path in traces]
    if len(set(names)) < len(names):
        raise UserError(f"two traces are called {max(names, key=names.count)!r}; rename one")
    entries = {path.stem: _entry(path) for path in traces}
    questions = _questions(traces)
    files = [RunFiles(path.stem, path, {}) for path in traces]
    write_benchmark(folder / DATA, PROMPTS, questions, files)
    models = list(dict.fromkeys(name for entry in entries.values() for name in entry.models))
    benchmark = BenchmarkEntry(PROMPTS, len(questions), tuple(names), accuracy=False)
    write_manifest(folder / DATA, Manifest([benchmark], entries, models, []))
    write_explorer(folder, report=False)


def _entry(path: Path) -> RunEntry:
    settings: dict[str, Any] = read_metadata(path).get("settings", {})
    if "models" not in settings:
        raise UserError(
            f"{str(path)!r} is no trace of adafuse generate; for the workflow's, give its results"
            " folder"
        )
    models = tuple(Path(name).name for name in settings["models"])
    return RunEntry(settings["method"], models, settings.get("tau", tau_of(settings["method"], {})))


def _questions(traces: Sequence[Path]) -> list[Question]:
    rows = read_rows(traces[0])
    questions = [Question(row["id"], row.get("prompt") or "") for row in rows]
    ids = {each.id for each in questions}
    for path in traces[1:]:
        if others := ids ^ {row["id"] for row in read_rows(path, ["id"])}:
            raise UserError(
                f"{str(traces[0])!r} and {str(path)!r} do not hold the same ids ({min(others)!r} is"
                " in one only); report them apart"
            )
    return questions
