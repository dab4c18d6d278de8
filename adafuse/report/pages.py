"""The report's pages: `results/report/`, a folder that opens anywhere, and the trace explorer."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from adafuse.errors import UserError
from adafuse.files import write_text
from adafuse.parquet import iterate_rows, read_metadata
from adafuse.report.contents import LEGEND, Contents, Figure, read_contents
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
from adafuse.report.figures import page_scores, page_seconds, page_words
from adafuse.report.main_table import table_view
from adafuse.report.stored import Stored, tau_of
from adafuse.version import __version__
from adafuse.workflow.digest import reported_config
from adafuse.workflow.provenance import source_commit

DATA = "data"

PROMPTS = "prompts"
"""What stands in place of a benchmark's name."""

_TITLE = re.compile(r"\A#{1,2} .*\n")
SCRIPTS = (
    "theme.js",
    "chunks.js",
    "../data/manifest.js",
    "dom.js",
    "model.js",
    "filters.js",
    "spans.js",
    "rounds.js",
    "detail.js",
    "list.js",
    "state.js",
    "explorer.js",
)
"""In the order in which they are loaded."""


def check_folder(folder: Path) -> None:
    """Make the folder of a report, which may be there already.

    Raises:
        UserError: it is a file, cannot be made, or holds other things than a report.
    """
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


def write_report(stored: Stored, folder: Path) -> None:
    """Write the pages, and the explorer's data of all benchmarks.

    Raises:
        UserError: a result cannot be read.
    """
    for benchmark in stored.runs:
        write_examples(stored, benchmark, folder)
    write_pages(stored, folder)


def write_examples(stored: Stored, benchmark: str, folder: Path) -> None:
    """Write the explorer's data of a benchmark into the report in a folder.

    Raises:
        UserError: a trace cannot be read.
    """
    questions, files = stored.questions(benchmark), stored.files(benchmark)
    write_benchmark(folder / DATA, benchmark, questions, files)


def write_pages(stored: Stored, folder: Path) -> None:
    """Write index.html and explorer.html, and drop data that they do not show.

    Raises:
        UserError: a result cannot be read.
    """
    contents = read_contents(stored)
    for gone in {*read_benchmarks(folder / DATA)} - {*stored.runs}:
        shutil.rmtree(folder / DATA / gone, ignore_errors=True)
    write_manifest(folder / DATA, stored.manifest())
    write_explorer(folder, report=True)
    write_text(folder / "assets" / "vega.js", _vega())
    write_text(folder / "assets" / "charts.js", _charts(contents))
    shutil.rmtree(folder / "figures", ignore_errors=True)
    figures = [_copied(figure, folder / "figures") for figure in contents.figures]
    page = _templates().get_template("index.html.j2")
    write_text(folder / "index.html", page.render(**_values(stored, contents), figures=figures))


def _values(stored: Stored, contents: Contents) -> dict[str, Any]:
    return {
        "contents": contents,
        "tables": {
            protocol: table_view(table, protocol, contents.marks, contents.options)
            for protocol, table in contents.tables.items()
        },
        "legend": LEGEND,
        "texts": {name: _html(text) for name, text in contents.texts.items()},
        "config": json.dumps(reported_config(stored.config), indent=2, ensure_ascii=False),
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "commit": source_commit(),
    }


def _html(text: str) -> Markup:
    """Turn Markdown into HTML without its title; HTML in it stays text."""
    text = _TITLE.sub("", text)
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    return Markup(parser.render(text))


def _vega() -> str:
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle


def _charts(contents: Contents) -> str:
    timed = [cost for cost in contents.costs if cost.timed]
    specs = {
        "scores": page_scores(contents.tables),
        "words": page_words(contents.words),
        "seconds": page_seconds(timed),
    }
    drawn = {name: spec for name, spec in specs.items() if spec}
    return f"const charts = {json.dumps(drawn)};\n"


def _copied(figure: Figure, folder: Path) -> Figure:
    folder.mkdir(parents=True, exist_ok=True)
    for path in (figure.svg, figure.csv):
        shutil.copyfile(path, folder / path.name)
    return figure


def _templates() -> Environment:
    """Return the templates; whatever they are given is escaped."""
    return Environment(
        loader=PackageLoader("adafuse.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip


def write_explorer(folder: Path, *, report: bool) -> None:
    """Write explorer.html and its assets into a folder.

    Args:
        folder: what will hold data/ beside them.
        report: whether there is an index.html to link to.
    """
    _copy_assets(folder / "assets")
    page = _templates().get_template("explorer.html.j2")
    write_text(folder / "explorer.html", page.render(scripts=SCRIPTS, report=report))


def _copy_assets(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for asset in files("adafuse.report").joinpath("assets").iterdir():
        if asset.name.endswith((".js", ".css")):
            with asset.open("rb") as source, (folder / asset.name).open("wb") as target:
                shutil.copyfileobj(source, target)


def write_loose_report(traces: Sequence[Path], folder: Path) -> None:
    """Write the explorer over traces, each a run; those of the same prompts can be compared.

    Raises:
        UserError: a file that is not a trace of `generate`, two of one name, or other ids in each.
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
    benchmark = BenchmarkEntry(PROMPTS, len(questions), tuple(names))
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
            f"{str(path)!r} is not a trace of adafuse generate; for those of the workflow, give its"
            " results folder"
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
    prompts = _prompts(traces[0])
    for path in traces[1:]:
        found = _prompts(path)
        if others := prompts.keys() ^ found.keys():
            raise UserError(
                f"{str(traces[0])!r} and {str(path)!r} do not hold the same ids ({min(others)!r} is"
                " in one only); make a report of each"
            )
        if others := {name for name, prompt in prompts.items() if prompt != found[name]}:
            raise UserError(
                f"{str(traces[0])!r} and {str(path)!r} have different prompts of id"
                f" {min(others)!r}; make a report of each"
            )
    return [Question(name, prompt or "") for name, prompt in prompts.items()]


def _prompts(path: Path) -> dict[str, str | None]:
    """Return the prompts by id; None in a trace that does not keep them."""
    return {row["id"]: row.get("prompt") for row in iterate_rows(path, ("id", "prompt"))}
