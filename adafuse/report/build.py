"""Writing the report: `results/report/`, a folder that opens anywhere."""

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from adafuse.explorer.benchmark_data import write_benchmark
from adafuse.explorer.manifest import read_benchmarks, write_manifest
from adafuse.explorer.pages import copy_assets, templates, write_explorer
from adafuse.files import write_text
from adafuse.report.charts import scores_chart, seconds_chart, words_chart
from adafuse.report.contents import Contents, Figure, read_contents
from adafuse.report.folder import DATA
from adafuse.report.marks import LEGEND
from adafuse.report.stored import Stored
from adafuse.report.table_view import table_view
from adafuse.version import __version__
from adafuse.workflow.digest import reported_config
from adafuse.workflow.provenance import source_commit

_TITLE = re.compile(r"\A#{1,2} .*\n")


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
    copy_assets("adafuse.report", folder / "assets")
    write_text(folder / "assets" / "vega.js", _vega())
    write_text(folder / "assets" / "charts.js", _charts(contents))
    shutil.rmtree(folder / "figures", ignore_errors=True)
    figures = [_copied(figure, folder / "figures") for figure in contents.figures]
    page = templates("adafuse.report").get_template("index.html.j2")
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
        "scores": scores_chart(contents.tables),
        "words": words_chart(contents.words),
        **({"seconds": seconds_chart(timed)} if timed else {}),
    }
    return f"const charts = {json.dumps(specs)};\n"


def _copied(figure: Figure, folder: Path) -> Figure:
    folder.mkdir(parents=True, exist_ok=True)
    for path in (figure.svg, figure.csv):
        shutil.copyfile(path, folder / path.name)
    return figure
