"""Writing the report: `results/report/`, a folder that opens anywhere."""

import json
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from adafuse.explorer.benchmark_data import write_benchmark
from adafuse.explorer.manifest import write_manifest
from adafuse.explorer.pages import copy_assets, templates, write_explorer
from adafuse.pipeline.provenance import source_commit
from adafuse.pipeline.shown import shown
from adafuse.report.charts import scores_chart, seconds_chart, words_chart
from adafuse.report.contents import Contents, Figure, read_contents
from adafuse.report.marks import LEGEND
from adafuse.report.stored import Stored
from adafuse.report.table_view import table_view
from adafuse.traces.atomic import write_text
from adafuse.version import __version__

DATA = "data"


def write_report(stored: Stored, folder: Path) -> None:
    """Write the pages, and the explorer's data of all benchmarks.

    Raises:
        UserError: a result cannot be read.
    """
    for benchmark in stored.runs:
        write_examples(stored, benchmark, folder / DATA / benchmark)
    write_pages(stored, folder)


def write_examples(stored: Stored, benchmark: str, folder: Path) -> None:
    """Write the explorer's data of a benchmark to a folder of its name.

    What it held before is replaced when all is written.

    Raises:
        UserError: a trace cannot be read.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=".writing-") as made:
        write_benchmark(Path(made), benchmark, stored.questions(benchmark), stored.files(benchmark))
        shutil.rmtree(folder, ignore_errors=True)
        Path(made, benchmark).rename(folder)


def write_pages(stored: Stored, folder: Path) -> None:
    """Write index.html and explorer.html, and drop data that they do not show.

    Raises:
        UserError: a result cannot be read.
    """
    contents = read_contents(stored)
    _remove_others(folder / DATA, stored.runs)
    write_manifest(folder / DATA, stored.manifest())
    write_explorer(folder, report=True)
    copy_assets("adafuse.report", folder / "assets")
    write_text(folder / "assets" / "vega.js", _vega())
    write_text(folder / "assets" / "charts.js", _charts(contents))
    figures = [_copied(figure, folder / "figures") for figure in contents.figures]
    page = templates("adafuse.report").get_template("index.html.j2")
    write_text(folder / "index.html", page.render(**_values(stored, contents), figures=figures))


def _values(stored: Stored, contents: Contents) -> dict[str, Any]:
    return {
        "contents": contents,
        "tables": {
            protocol: table_view(table, protocol, contents.marks)
            for protocol, table in contents.tables.items()
        },
        "legend": LEGEND,
        "texts": {name: _html(text) for name, text in contents.texts.items()},
        "config": json.dumps(shown(stored.config), indent=2, ensure_ascii=False),
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "commit": source_commit(),
    }


def _html(text: str) -> Markup:
    """Turn Markdown into HTML; HTML in it stays text."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    return Markup(parser.render(text))


def _vega() -> str:
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle


def _charts(contents: Contents) -> str:
    specs = {
        "scores": scores_chart(contents.tables),
        "words": words_chart(contents.words),
        "seconds": seconds_chart(contents.costs),
    }
    return f"const charts = {json.dumps(specs)};\n"


def _copied(figure: Figure, folder: Path) -> Figure:
    folder.mkdir(parents=True, exist_ok=True)
    for path in (figure.svg, figure.csv):
        shutil.copyfile(path, folder / path.name)
    return figure


def _remove_others(folder: Path, names: Iterable[str]) -> None:
    for path in folder.glob("*/"):
        if path.name not in set(names):
            shutil.rmtree(path)
