"""The main table as the page shows it."""

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
    """A run with a cell per benchmark, and the macro average behind them."""

    run: str
    method: str
    models: str
    cells: tuple[CellView, ...]


@dataclass(frozen=True, slots=True)
class TableView:
    """Headings as (benchmark, metric, n), and rows."""

    headings: tuple[tuple[str, str, int | None], ...]
    rows: tuple[RowView, ...]


def table_view(table: Table, protocol: str, marks: Mapping[Cell, str]) -> TableView:
    """Arrange a table of one protocol for the page."""
    headings = tuple(
        (name, column_metric(table, column), column_n(table, column))
        for column, name in enumerate(table.benchmarks)
    )
    best = [best_rows(table, column) for column in (*range(len(table.benchmarks)), None)]
    rows = tuple(_row(table, number, protocol, marks, best) for number in range(len(table.rows)))
    return TableView(headings, rows)


def _row(
    table: Table, number: int, protocol: str, marks: Mapping[Cell, str], best: list[set[int]]
) -> RowView:
    row = table.rows[number]
    cells = [
        _cell(cell, marks.get((protocol, name, row.run), ""), number in best[column])
        for column, (name, cell) in enumerate(zip(table.benchmarks, row.cells, strict=True))
    ]
    average = _average(row, number in best[-1])
    method = f"{row.method} (oracle)" if row.oracle else row.method
    return RowView(row.run, method, " + ".join(row.models), (*cells, average))


def _cell(score: Score | None, marks: str, best: bool) -> CellView:
    if score is None:
        return CellView("")
    main = score.main
    return CellView(f"{main.value:.1f}", f"{main.low:.1f} to {main.high:.1f}", marks, best)


def _average(row: TableRow, best: bool) -> CellView:
    average = row.macro_average
    return CellView("" if average is None else f"{average:.1f}", best=best)
