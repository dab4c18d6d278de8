"""The main table as pages and terminals show it."""

from collections.abc import Mapping
from dataclasses import dataclass

from adafuse.report.marks import Cell
from adafuse.scoring.score import Score
from adafuse.scoring.table import Table, TableRow, best_rows, column_metric, column_n


@dataclass(frozen=True, slots=True)
class CellView:
    """A value with its interval and marks as text, and whether it is the best of its column."""

    value: str
    interval: str = ""
    marks: str = ""
    best: bool = False


@dataclass(frozen=True, slots=True)
class RowView:
    """A run, its options in words, a cell per benchmark, and the macro average behind them."""

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
    table: Table, protocol: str, marks: Mapping[Cell, str], options: Mapping[str, str]
) -> TableView:
    """Arrange a table of one protocol for the page; `options` tells those of each run."""
    headings = tuple(
        (name, column_metric(table, column), column_n(table, column))
        for column, name in enumerate(table.benchmarks)
    )
    best = [best_rows(table, column) for column in (*range(len(table.benchmarks)), None)]
    rows = tuple(
        _row(table, number, options.get(row.run, ""), _marks(marks, protocol, row.run), best)
        for number, row in enumerate(table.rows)
    )
    return TableView(headings, rows)


def _marks(marks: Mapping[Cell, str], protocol: str, run: str) -> Mapping[str, str]:
    return {name: text for (each, name, of), text in marks.items() if (each, of) == (protocol, run)}


def _row(
    table: Table, number: int, options: str, marks: Mapping[str, str], best: list[set[int]]
) -> RowView:
    row = table.rows[number]
    cells = [
        _cell(cell, marks.get(name, ""), number in best[column])
        for column, (name, cell) in enumerate(zip(table.benchmarks, row.cells, strict=True))
    ]
    average = _average(row, number in best[-1])
    return RowView(row.run, row.method, row.oracle, row.models, options, (*cells, average))


def _cell(score: Score | None, marks: str, best: bool) -> CellView:
    if score is None:
        return CellView("")
    main = score.main
    return CellView(f"{main.value:.1f}", f"{main.low:.1f} to {main.high:.1f}", marks, best)


def _average(row: TableRow, best: bool) -> CellView:
    average = row.macro_average
    return CellView("" if average is None else f"{average:.1f}", best=best)
