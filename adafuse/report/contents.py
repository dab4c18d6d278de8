"""Everything that the report's page shows, read from a results folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from adafuse.comparison.comparison_table import from_csv
from adafuse.comparison.published_markdown import TITLE
from adafuse.comparison.words_per_round import WordShare, words_per_round
from adafuse.config.runs import RunConfig
from adafuse.report.facts import Cost, Origin, cost, origin
from adafuse.report.marks import Cell, marks
from adafuse.report.stored import Stored
from adafuse.scoring.score import read_score
from adafuse.scoring.table import Table
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.tables import main_table


@dataclass(frozen=True, slots=True)
class Figure:
    """An experiment's figure and numbers."""

    name: str
    title: str
    svg: Path
    csv: Path


@dataclass(frozen=True, slots=True)
class Contents:
    """Tables by protocol, marks of their cells, texts in Markdown, and what each run cost.

    `options` are those of each run in words; `significant` counts the tests that find a difference,
    and all tests.
    """

    note: str | None
    tables: Mapping[str, Table]
    marks: Mapping[Cell, str]
    options: Mapping[str, str]
    significant: tuple[int, int]
    texts: Mapping[str, str]
    costs: Sequence[Cost]
    words: Sequence[WordShare]
    figures: Sequence[Figure]
    origins: Sequence[Origin]


def read_contents(stored: Stored) -> Contents:
    """Read what there is; tables that were not made are left out.

    Raises:
        UserError: a file cannot be read.
    """
    config = stored.config
    layout = ResultsLayout(config.results)
    comparison = layout.table("comparison.csv")
    pairs = [(benchmark, run) for benchmark, runs in stored.runs.items() for run in runs]
    compared = from_csv(comparison.read_text(encoding="utf-8")) if comparison.is_file() else []
    return Contents(
        note=config.note,
        tables={protocol: _table(stored, protocol) for protocol in config.protocols},
        marks=marks(compared),
        texts=_texts(layout),
        options={name: _options(run) for name, run in config.runs.items()},
        significant=(sum(each.significant for each in compared), len(compared)),
        costs=[
            cost(stored.trace(*pair), *pair, timed=config.benchmarks[pair[0]].timed)
            for pair in pairs
        ],
        words=[share for pair in pairs for share in _words(stored, *pair)],
        figures=_figures(stored),
        origins=[_origin(stored, run) for run in dict.fromkeys(run for _, run in pairs)],
    )


def _table(stored: Stored, protocol: str) -> Table:
    config = stored.config
    paths = [
        ResultsLayout(config.results).score(protocol, benchmark, run)
        for benchmark in config.main_benchmarks
        for run in config.main_runs
    ]
    scores = [read_score(path) for path in paths if path.is_file()]
    return main_table(config, scores, protocol)


def _texts(layout: ResultsLayout) -> Mapping[str, str]:
    names = ("comparison", "audit", "datasets")
    texts = {name: layout.table(f"{name}.md") for name in names}
    found = {n: p.read_text(encoding="utf-8") for n, p in texts.items() if p.is_file()}
    main = layout.table("main.md")
    _, title, numbers = (main.read_text(encoding="utf-8") if main.is_file() else "").partition(
        TITLE
    )
    return found | ({"published": title + numbers} if title else {})


def _words(stored: Stored, benchmark: str, run: str) -> list[WordShare]:
    if len(stored.config.runs[run].models) < 2:
        return []
    return words_per_round(stored.trace(benchmark, run))


def _options(run: RunConfig) -> str:
    return ", ".join(f"{name} {value}" for name, value in run.options.items())


def _figures(stored: Stored) -> list[Figure]:
    layout = ResultsLayout(stored.config.results)
    return [
        Figure(name, section.title, svg, svg.with_suffix(".csv"))
        for name, section in stored.config.experiments.items()
        if (svg := layout.experiment(name, "svg")).is_file()
    ]


def _origin(stored: Stored, run: str) -> Origin:
    traces = [stored.trace(name, run) for name, runs in stored.runs.items() if run in runs]
    return origin(traces, run)
