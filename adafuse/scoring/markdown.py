"""The main table as Markdown."""

import re

from adafuse.scoring.score import Score
from adafuse.scoring.table import Table, TableRow, best_rows, column_metric, column_n

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$&])")

_LEGEND = (
    "Scores in percent with their 95 % intervals (Wilson; bootstrap for BLEU), {} scoring. The"
    " macro average is the mean of a row's own cells. Best of each column in bold."
)


def to_markdown(table: Table, protocol: str = "strict") -> str:
    """Return the table with its note above and what it leaves out below."""
    head = ["run", "method", "models", *_headings(table), "macro average"]
    best = [best_rows(table, column) for column in (*range(len(table.benchmarks)), None)]
    body = [_row(number, row, best) for number, row in enumerate(table.rows)]
    rule = ["---"] * 3 + ["---:"] * (len(head) - 3)
    note = [f"**Note:** {escape(table.note)}\n"] if table.note else []
    lines = [*note, _line(head), _line(rule), *body, "", _LEGEND.format(protocol), *_remarks(table)]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Escape what Markdown would take for markup; a line break becomes a space."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _headings(table: Table) -> list[str]:
    return [
        f"{escape(name)} ({escape(column_metric(table, column))}, n = {column_n(table, column)})"
        for column, name in enumerate(table.benchmarks)
    ]


def _row(number: int, row: TableRow, best: list[set[int]]) -> str:
    values = [_cell(cell) for cell in row.cells]
    average = row.macro_average
    values.append("" if average is None else f"{average:.1f}")
    marked = [
        _bold(value) if number in rows else value for value, rows in zip(values, best, strict=True)
    ]
    method = escape(row.method) + " (oracle)" * row.oracle
    return _line([escape(row.run), method, escape("+".join(row.models)), *marked])


def _cell(cell: Score | None) -> str:
    if cell is None:
        return ""
    return f"{cell.main.value:.1f} [{cell.main.low:.1f}, {cell.main.high:.1f}]"


def _bold(cell: str) -> str:
    value, space, interval = cell.partition(" ")
    return f"**{value}**{space}{interval}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _remarks(table: Table) -> list[str]:
    """Say which scores count rows without a usable text, and which rows are left out."""
    remarks = [
        f"- {escape(cell.run)} on {escape(cell.benchmark)}: {cell.missing} missing, {cell.empty}"
        f" empty, {cell.failed} failed, counted as wrong."
        for row in table.rows
        for cell in row.cells
        if cell is not None and (cell.missing or cell.empty or cell.failed)
    ]
    excluded = {
        cell.benchmark: cell.excluded
        for row in table.rows
        for cell in row.cells
        if cell is not None and cell.excluded
    }
    remarks += [
        f"- {escape(name)}: {count} rows that are worked examples of the prompt are left out."
        for name, count in excluded.items()
    ]
    return ["", *remarks] if remarks else []
