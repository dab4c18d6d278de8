"""The report's pages: `results/report/`, a folder that opens anywhere, and the trace explorer."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from adafuse.config.config import Config
from adafuse.errors import UserError
from adafuse.models.spec import public_name, recorded_names
from adafuse.records.views import told_apart
from adafuse.report.contents import read_contents
from adafuse.report.explorer import (
    BenchmarkEntry,
    Manifest,
    Question,
    RunEntry,
    RunFiles,
    has_manifest,
    read_benchmarks,
    write_benchmark,
    write_manifest,
)
from adafuse.report.stored import StoredResults, tau_of
from adafuse.storage.files import without_folders, write_bytes, write_text
from adafuse.storage.parquet import iterate_rows, read_metadata
from adafuse.storage.provenance import source_commit
from adafuse.storage.traces import check_trace
from adafuse.version import __version__
from adafuse.workflow.digest import reported_config
from adafuse.workflow.stamps import intact

DATA = "data"

PROMPTS = "prompts"
"""What stands in place of a benchmark's name."""

_TITLE = re.compile(r"\A#{1,2} .*\n")


def check_folder(folder: Path) -> None:
    """Make the folder of a report, which may be there already."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = any(folder.iterdir()) and not has_manifest(folder / DATA)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"{str(folder)!r} cannot hold a report ({reason}); give another --out"
        ) from None
    if others:
        raise UserError(
            f"{str(folder)!r} holds other files than a report; give a new or empty folder"
        )


def write_report(results: StoredResults, folder: Path) -> None:
    """Write the pages, and the explorer's data of all benchmarks."""
    for benchmark in results.runs:
        write_examples(results, benchmark, folder)
    write_pages(results, folder)


def write_examples(results: StoredResults, benchmark: str, folder: Path) -> None:
    """Write the explorer's data of a benchmark into the report in a folder."""
    questions, files = results.questions(benchmark), results.files(benchmark)
    write_benchmark(folder / DATA, benchmark, questions, files)


def write_pages(results: StoredResults, folder: Path) -> None:
    """Write index.html, explorer.html and failures.html, and drop data that they do not show."""
    contents = read_contents(results)
    for benchmark in {*read_benchmarks(folder / DATA)} - {*results.runs}:
        shutil.rmtree(folder / DATA / benchmark, ignore_errors=True)
    write_manifest(folder / DATA, results.manifest())
    write_explorer(folder, report=True)
    write_text(folder / "assets" / "vega.js", _vega())
    write_text(folder / "assets" / "charts.js", _charts(contents))
    shutil.rmtree(folder / "figures", ignore_errors=True)
    for svg in contents["figures"]:
        for path in (svg, svg.with_suffix(".csv")):
            write_bytes(folder / "figures" / path.name, intact(path).read_bytes())
    values = {
        **contents,
        "config": _public_config(results.config),
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "commit": source_commit(),
    }
    _write_page(folder / "index.html", values)


def _public_config(config: Config) -> str:
    """Return the configuration as JSON, with files of this machine by their last parts."""
    values = reported_config(config)
    for model in values.get("models", {}).values():
        model["path"] = public_name(model["path"])
    return without_folders(json.dumps(values, indent=2, ensure_ascii=False))


def _html(text: str) -> Markup:
    """Turn Markdown into HTML without its title; HTML in it stays text."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    return Markup(parser.render(_TITLE.sub("", text)))


@cache
def _vega() -> str:
    """Return the script that draws charts, which takes seconds to bundle."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle


def _charts(contents: Mapping[str, Any]) -> str:
    from adafuse.report.figures import page_scores, page_seconds, page_words

    specs = {
        "scores": page_scores(contents["tables"]),
        "words": page_words(contents["words"]),
        "seconds": page_seconds([cost for cost in contents["costs"] if cost.timed]),
    }
    drawn = {name: spec for name, spec in specs.items() if spec}
    return f"const charts = {json.dumps(drawn)};\n"


def _write_page(path: Path, values: Mapping[str, Any]) -> None:
    """Fill the template of that name; whatever it is given is escaped."""
    templates = Environment(
        loader=PackageLoader("adafuse.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    templates.filters["markdown"] = _html
    write_text(path, templates.get_template(f"{path.name}.j2").render(values))


def write_explorer(folder: Path, *, report: bool) -> None:
    """Write explorer.html and its assets; with a `report`, of which it is a page, failures.html."""
    assets = Path(__file__).parent / "assets"
    shutil.copytree(assets, folder / "assets", copy_function=shutil.copyfile, dirs_exist_ok=True)
    _write_page(folder / "explorer.html", {"report": report})
    if report:
        _write_page(folder / "failures.html", {})


def write_loose_report(traces: Sequence[Path], folder: Path) -> None:
    """Write the explorer over traces, each a run; those of the same prompts can be compared."""
    check_folder(folder)
    names = [path.stem for path in traces]
    if len(set(names)) < len(names):
        raise UserError(f"two traces are called {max(names, key=names.count)!r}; rename one")
    settings = {path.stem: _settings(path) for path in traces}
    short = _short_names({name for run in settings.values() for name in run["models"]})
    entries = {}
    for name, run in settings.items():
        tau = run.get("tau", tau_of(run["method"], {}))
        models = told_apart([short[path] for path in run["models"]])
        entries[name] = RunEntry(run["method"], tuple(models), tau)
    questions = _questions(traces)
    if not questions:
        raise UserError(f"{str(traces[0])!r} has no examples; name another file")
    files = [RunFiles(path.stem, path, {}) for path in traces]
    write_benchmark(folder / DATA, PROMPTS, questions, files)
    shown = dict.fromkeys(name for entry in entries.values() for name in entry.models)
    benchmark = BenchmarkEntry(PROMPTS, len(questions), tuple(names))
    write_manifest(folder / DATA, Manifest([benchmark], entries, list(shown), []))
    write_explorer(folder, report=False)


def _settings(path: Path) -> dict[str, Any]:
    check_trace(path)
    settings: dict[str, Any] = read_metadata(path).get("settings", {})
    if "models" not in settings:
        raise UserError(
            f"{str(path)!r} is not a trace of adafuse generate; for those of the workflow, give its"
            " results folder"
        )
    return {**settings, "models": recorded_names(settings)}


def _short_names(paths: Iterable[str]) -> dict[str, str]:
    """Return the last part of each path; those that share it are told apart, without folders."""
    last = {path: Path(path).name for path in sorted(paths)}
    times = Counter(last.values())
    shown: dict[str, str] = {}
    for path, name in last.items():
        whole = public_name(path)
        number = 1 + sum(1 for other in shown if last[other] == name)
        several = whole if whole != name else f"{name}-{number}"
        shown[path] = several if times[name] > 1 else name
    return shown


def _questions(traces: Sequence[Path]) -> list[Question]:
    first, prompts = traces[0], _prompts(traces[0])
    for path in traces[1:]:
        compared = _prompts(path)
        if others := prompts.keys() ^ compared.keys():
            raise UserError(
                f"{str(first)!r} and {str(path)!r} do not hold the same ids ({min(others)!r} is"
                " in one only); make a report of each"
            )
        if others := {name for name, prompt in prompts.items() if prompt != compared[name]}:
            raise UserError(
                f"{str(first)!r} and {str(path)!r} have different prompts of id"
                f" {min(others)!r}; make a report of each"
            )
    return [Question(name, prompt or "") for name, prompt in prompts.items()]


def _prompts(path: Path) -> dict[str, str | None]:
    """Return the prompts by id; None in a trace that does not keep them."""
    return {row["id"]: row.get("prompt") for row in iterate_rows(path, ("id", "prompt"))}
