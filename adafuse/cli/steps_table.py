"""The main table in the terminal."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from adafuse.pipeline.report import Output
from adafuse.scoring.score import Score
from adafuse.scoring.table import Table, TableRow, best_rows, column_n


def print_table(table: Table, console: Console) -> None:
    """Print the table, its note first."""
    if table.note:
        console.print(f"[bold]Note:[/bold] {escape(table.note)}")
    grid = Grid("run", "models", title="Scores in percent, with 95 % intervals")
    for column, name in enumerate(table.benchmarks):
        grid.add_column(f"{escape(name)}\nn = {column_n(table, column)}", justify="right")
    grid.add_column("macro\naverage", justify="right")
    best = [best_rows(table, column) for column in (*range(len(table.benchmarks)), None)]
    for number, row in enumerate(table.rows):
        grid.add_row(*_row(number, row, best))
    console.print(grid)


def print_outputs(outputs: list[Output], console: Console) -> None:
    """Say where every output lies."""
    for output in outputs:
        console.print(f"{output.name:<24}{escape(str(output.path))}", soft_wrap=True)


def _row(number: int, row: TableRow, best: list[set[int]]) -> list[str]:
    values = [_cell(cell) for cell in row.cells]
    values.append("" if row.macro_average is None else f"{row.macro_average:.1f}")
    marked = [
        f"[bold]{value}[/bold]" if number in rows else value
        for value, rows in zip(values, best, strict=True)
    ]
    name = escape(row.run) + "\n(oracle)" * row.oracle
    return [name, escape("\n".join(row.models)), *marked]


def _cell(cell: Score | None) -> str:
    if cell is None:
        return ""
    return f"{cell.main.value:.1f}\n{cell.main.low:.1f} to {cell.main.high:.1f}"
