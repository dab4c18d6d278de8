"""The main table, a row per run and a cell per benchmark: built, viewed and written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from adafuse.config.config import Config
from adafuse.errors import UserError
from adafuse.metrics.published import Published
from adafuse.metrics.registry import metric_named
from adafuse.metrics.score import Score, read_score
from adafuse.metrics.scorer import PUBLISHED, STRICT, Metric
from adafuse.metrics.selection import is_oracle
from adafuse.report.tables import Table, escape, markdown_table, published_section
from adafuse.workflow.layout import ResultsLayout

Cell = tuple[str, str, str]
"""Protocol, benchmark and run."""

_LEGEND = (
    "Scores in percent with their 95 % intervals (Wilson; bootstrap for BLEU), {} scoring. The"
    " macro average is the mean of a row's own cells. Best of each column in bold."
)
_PUBLISHED = (
    "The rules of the scorer that the paper used for its Table 1, for comparison with its numbers;"
    " they accept wrong answers (audit.md shows which). That scorer finds rows by lower-cased"
    " question, so that it keeps 2,496 of the 2,500 SQuAD rows; this one finds them by id and keeps"
    " all."
)


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """A run with one cell per benchmark, None where it has no score; an oracle saw the answers."""

    run: str
    method: str
    models: tuple[str, ...]
    cells: tuple[Score | None, ...]

    @property
    def oracle(self) -> bool:
        """Whether the run is an upper bound that competes with nothing."""
        return is_oracle(self.method)

    @property
    def macro_average(self) -> float | None:
        """Mean of the row's own cells; None if one of them is missing."""
        values = [cell.main.value for cell in self.cells if cell is not None]
        return fmean(values) if values and len(values) == len(self.cells) else None


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """Runs by benchmarks; `note` is what a reader must know before the numbers."""

    benchmarks: tuple[str, ...]
    rows: tuple[ScoreRow, ...]
    note: str | None


def build_table(
    benchmarks: Sequence[str],
    runs: Mapping[str, tuple[str, Sequence[str]]],
    scores: Sequence[Score],
    note: str | None,
) -> ScoreTable:
    """Arrange scores.

    Args:
        benchmarks: names, in the order of the columns.
        runs: method and models by name, in the order of the rows.
        scores: any order; at most one per benchmark and run.
        note: printed above the table.

    Raises:
        UserError: scores of one benchmark over different numbers of rows, scores of different
            protocols, or BLEU with different SentencePiece models.
    """
    cells = {(score.run, score.benchmark): score for score in scores}
    rows = tuple(
        ScoreRow(run, method, tuple(models), tuple(cells.get((run, name)) for name in benchmarks))
        for run, (method, models) in runs.items()
    )
    table = ScoreTable(tuple(benchmarks), rows, note)
    _refuse_mixtures(scores)
    for column, name in enumerate(benchmarks):
        if len(counts := _counts(table, column)) > 1:
            raise UserError(
                f"the scores of {name!r} cover {sorted(counts)} rows and cannot stand in one"
                " column; run the workflow again"
            )
    return table


def _refuse_mixtures(scores: Sequence[Score]) -> None:
    if len(protocols := {score.protocol for score in scores}) > 1:
        raise UserError(f"scores of {' and '.join(sorted(protocols))} cannot stand in one table")
    models = {str(score.details.get("spm_sha256", "")) for score in scores} - {""}
    if len(models) > 1:
        raise UserError(
            "the scores were made with different SentencePiece models, sha256"
            f" {' and '.join(sorted(models))}; put one of them in place and score again"
        )


def _counts(table: ScoreTable, column: int) -> set[int]:
    return {cell.n for row in table.rows if (cell := row.cells[column]) is not None}


def column_n(table: ScoreTable, column: int) -> int | None:
    """Return the number of rows that the scores of a column cover; None without scores."""
    return next(iter(_counts(table, column)), None)


def column_metric(table: ScoreTable, column: int) -> str:
    """Return the metric of a column; empty without scores."""
    cells = (row.cells[column] for row in table.rows)
    return next((cell.primary for cell in cells if cell is not None), "")


def best_rows(table: ScoreTable, column: int | None) -> set[int]:
    """Return the rows with the best value of a column (None: the macro average), as printed.

    Oracles take no part.
    """
    values = [None if row.oracle else _value(row, column) for row in table.rows]
    shown = [None if value is None else round(value, 1) for value in values]
    best = min if column is not None and not _metric(table, column).higher_is_better else max
    top = best((value for value in shown if value is not None), default=None)
    return {number for number, value in enumerate(shown) if value is not None and value == top}


def _metric(table: ScoreTable, column: int) -> Metric:
    return metric_named(column_metric(table, column))


def _value(row: ScoreRow, column: int | None) -> float | None:
    if column is None:
        return row.macro_average
    cell = row.cells[column]
    return None if cell is None else cell.main.value


@dataclass(frozen=True, slots=True)
class CellView:
    """A value with its interval and marks as text, and whether it is the best of its column."""

    value: str
    interval: str = ""
    marks: str = ""
    best: bool = False


@dataclass(frozen=True, slots=True)
class RowView:
    """A run, its options in words, a cell per benchmark, and then the macro average."""

    run: str
    method: str
    oracle: bool
    models: tuple[str, ...]
    options: str
    cells: tuple[CellView, ...]


@dataclass(frozen=True, slots=True)
class TableView:
    """Headings as (benchmark, metric, n), and rows."""

    headings: tuple[tuple[str, str, int | None], ...]
    rows: tuple[RowView, ...]


def table_view(
    table: ScoreTable, protocol: str, marks: Mapping[Cell, str], options: Mapping[str, str]
) -> TableView:
    """Arrange a table of one protocol for the page; `options` are those of each run."""
    headings = tuple(
        (name, _metric(table, column).label, column_n(table, column))
        for column, name in enumerate(table.benchmarks)
    )
    best = [best_rows(table, column) for column in (*range(len(table.benchmarks)), None)]
    rows = tuple(
        _row_view(table, number, options.get(row.run, ""), _marks(marks, protocol, row.run), best)
        for number, row in enumerate(table.rows)
    )
    return TableView(headings, rows)


def _marks(marks: Mapping[Cell, str], protocol: str, run: str) -> Mapping[str, str]:
    return {name: text for (each, name, of), text in marks.items() if (each, of) == (protocol, run)}


def _row_view(
    table: ScoreTable, number: int, options: str, marks: Mapping[str, str], best: list[set[int]]
) -> RowView:
    row = table.rows[number]
    cells = [
        _cell_view(cell, marks.get(name, ""), number in best[column])
        for column, (name, cell) in enumerate(zip(table.benchmarks, row.cells, strict=True))
    ]
    average = _average(row, number in best[-1])
    return RowView(row.run, row.method, row.oracle, row.models, options, (*cells, average))


def _cell_view(score: Score | None, marks: str, best: bool) -> CellView:
    if score is None:
        return CellView("")
    main = score.main
    return CellView(f"{main.value:.1f}", f"{main.low:.1f} to {main.high:.1f}", marks, best)


def _average(row: ScoreRow, best: bool) -> CellView:
    average = row.macro_average
    return CellView("" if average is None else f"{average:.1f}", best=best)


def main_table(config: Config, scores: Sequence[Score], protocol: str = STRICT) -> ScoreTable:
    """Arrange the scores of one protocol in the order of the configuration."""
    runs = {name: (config.runs[name].method, config.runs[name].models) for name in config.main_runs}
    chosen = [score for score in scores if score.protocol == protocol]
    return build_table(config.main_benchmarks, runs, chosen, config.note)


def stored_table(config: Config) -> ScoreTable:
    """Make the main table of the strict scores that a configuration's results folder has.

    Raises:
        UserError: there are none.
    """
    layout = ResultsLayout(config.results)
    cells = [(name, run) for name in config.main_benchmarks for run in config.main_runs]
    paths = [layout.score(STRICT, *cell) for cell in cells]
    found = [read_score(path) for path in paths if path.is_file()]
    if not found:
        folder = str(layout.scores / STRICT)
        raise UserError(f"{folder!r} holds no scores of this configuration; run snakemake")
    return main_table(config, found)


def score_table(table: ScoreTable, markdown: str = "") -> Table:
    """Return the table as CSV has it: percent, blank where there is no score."""
    cells = [f"{name}{end}" for name in table.benchmarks for end in ("", "_low", "_high", "_n")]
    rows = [
        [row.run, row.method, "+".join(row.models), *_values(row), row.macro_average]
        for row in table.rows
    ]
    return Table(["run", "method", "models", *cells, "macro_average"], rows, markdown)


def _values(row: ScoreRow) -> list[float | int | None]:
    missing = (None, None, None, None)
    cells = [
        missing if cell is None else (cell.main.value, cell.main.low, cell.main.high, cell.n)
        for cell in row.cells
    ]
    return [value for cell in cells for value in cell]


def tables_markdown(
    strict: ScoreTable, published: ScoreTable | None, paper: Published | None
) -> str:
    """Return the page of the main table.

    Args:
        strict: comes first.
        published: comes second, and then published - strict in points.
        paper: the paper's own numbers, in a table at the end.
    """
    parts = [to_markdown(strict)]
    if published is not None:
        plain = ScoreTable(published.benchmarks, published.rows, None)
        parts += ["## Published scorer\n", f"{_PUBLISHED}\n", to_markdown(plain, PUBLISHED)]
        parts += ["## Published minus strict, in points\n", _differences(strict, published)]
    protocol = STRICT if published is None else PUBLISHED
    section = published_section(paper, strict.benchmarks, protocol) if paper else ""
    return "\n".join([*parts, *([section] if section else [])])


def to_markdown(table: ScoreTable, protocol: str = STRICT) -> str:
    """Return one table with its note above and what it leaves out below."""
    headings = [
        f"{escape(name)} ({escape(column_metric(table, column))}, n = {column_n(table, column)})"
        for column, name in enumerate(table.benchmarks)
    ]
    view = table_view(table, protocol, {}, {})
    rows = [
        [escape(row.run), _method(row), escape("+".join(row.models)), *map(_markdown, row.cells)]
        for row in view.rows
    ]
    note = f"**Note:** {escape(table.note)}\n\n" if table.note else ""
    head = ["run", "method", "models", *headings, "macro average"]
    remarks = "".join(f"- {remark}\n" for remark in _remarks(table))
    below = f"\n{_LEGEND.format(protocol)}\n" + (f"\n{remarks}" if remarks else "")
    return note + markdown_table(head, rows, text=3) + below


def _method(row: "RowView") -> str:
    return escape(row.method) + " (oracle)" * row.oracle


def _markdown(cell: "CellView") -> str:
    value = f"**{cell.value}**" if cell.best else cell.value
    return f"{value} [{cell.interval.replace(' to ', ', ')}]" if cell.interval else value


def _remarks(table: ScoreTable) -> list[str]:
    """Say which scores count rows without a usable text, and which rows are left out."""
    cells = [cell for row in table.rows for cell in row.cells if cell is not None]
    remarks = [
        f"{escape(cell.run)} on {escape(cell.benchmark)}: {cell.missing} missing, {cell.empty}"
        f" empty, {cell.failed} failed, counted as wrong."
        for cell in cells
        if cell.missing or cell.empty or cell.failed
    ]
    excluded = {cell.benchmark: cell.excluded for cell in cells if cell.excluded}
    return remarks + [
        f"{escape(name)}: {count} rows that are few-shot examples of the prompt are left out."
        for name, count in excluded.items()
    ]


def _differences(strict: ScoreTable, published: ScoreTable) -> str:
    columns = [*range(len(strict.benchmarks)), None]
    rows = [
        [escape(a.run), *(_points(_value(a, column), _value(b, column)) for column in columns)]
        for a, b in zip(strict.rows, published.rows, strict=True)
    ]
    return markdown_table(["run", *map(escape, strict.benchmarks), "macro average"], rows)


def _points(strict: float | None, published: float | None) -> str:
    return "" if strict is None or published is None else f"{published - strict:+.1f}"
