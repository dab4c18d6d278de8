"""The explorer over traces of `adafuse generate`, which belong to no benchmark."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from adafuse.errors import UserError
from adafuse.explorer.benchmark_data import Question, RunFiles, write_benchmark
from adafuse.explorer.manifest import BenchmarkEntry, Manifest, RunEntry, write_manifest
from adafuse.explorer.pages import write_explorer
from adafuse.report.folder import DATA, check_folder
from adafuse.report.stored import tau_of
from adafuse.workflow.traces import column_names, read_metadata, read_rows

PROMPTS = "prompts"
"""What stands in place of a benchmark's name."""


def write_loose_report(traces: Sequence[Path], folder: Path) -> None:
    """Write the explorer over traces, each a run; those of the same prompts go side by side.

    Raises:
        UserError: a file that is no trace of `generate`, two of one name, or other ids in each.
    """
    check_folder(folder)
    names = [path.stem for path in traces]
    if len(set(names)) < len(names):
        raise UserError(f"two traces are called {max(names, key=names.count)!r}; rename one")
    entries = _entries(traces)
    questions = _questions(traces)
    files = [RunFiles(path.stem, path, {}) for path in traces]
    write_benchmark(folder / DATA, PROMPTS, questions, files)
    models = list(dict.fromkeys(name for entry in entries.values() for name in entry.models))
    benchmark = BenchmarkEntry(PROMPTS, len(questions), tuple(names), accuracy=False)
    write_manifest(folder / DATA, Manifest([benchmark], entries, models, []))
    write_explorer(folder, report=False)


def _entries(traces: Sequence[Path]) -> dict[str, RunEntry]:
    settings = {path.stem: _settings(path) for path in traces}
    short = _short_names({name for each in settings.values() for name in each["models"]})
    return {
        run: RunEntry(each["method"], tuple(short[name] for name in each["models"]), _tau(each))
        for run, each in settings.items()
    }


def _settings(path: Path) -> dict[str, Any]:
    settings: dict[str, Any] = read_metadata(path).get("settings", {})
    if "models" not in settings:
        raise UserError(
            f"{str(path)!r} is no trace of adafuse generate; for the workflow's, give its results"
            " folder"
        )
    return settings


def _short_names(paths: Iterable[str]) -> dict[str, str]:
    """Return the last part of each path; the whole of those that share it with others."""
    last = {path: Path(path).name for path in paths}
    times = Counter(last.values())
    return {path: path if times[name] > 1 else name for path, name in last.items()}


def _tau(settings: dict[str, Any]) -> float | None:
    tau: float | None = settings.get("tau", tau_of(settings["method"], {}))
    return tau


def _questions(traces: Sequence[Path]) -> list[Question]:
    asked = _prompts(traces[0])
    for path in traces[1:]:
        found = _prompts(path)
        if others := asked.keys() ^ found.keys():
            raise UserError(
                f"{str(traces[0])!r} and {str(path)!r} do not hold the same ids ({min(others)!r} is"
                " in one only); report them apart"
            )
        if others := {name for name, prompt in asked.items() if prompt != found[name]}:
            raise UserError(
                f"{str(traces[0])!r} and {str(path)!r} have different prompts of id"
                f" {min(others)!r}; report them apart"
            )
    return [Question(name, prompt or "") for name, prompt in asked.items()]


def _prompts(path: Path) -> dict[str, str | None]:
    """Return the prompts by id; None in a trace that does not keep them."""
    names = [name for name in ("id", "prompt") if name in column_names(path)]
    return {row["id"]: row.get("prompt") for row in read_rows(path, names)}
