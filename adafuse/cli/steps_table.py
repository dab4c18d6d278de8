"""The main table in the terminal."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from adafuse.pipeline.report import Output
from adafuse.report.table_view import CellView, table_view
from adafuse.scoring.table import Table
from adafuse.scoring.tasks import STRICT


def print_table(table: Table, console: Console) -> None:
    """Print the table, its note first."""
    if table.note:
        console.print(f"[bold]Note:[/bold] {escape(table.note)}")
    view = table_view(table, STRICT, {}, {})
    grid = Grid("run", "models", title="Scores in percent, with 95 % intervals")
    for name, _, n in view.headings:
        grid.add_column(f"{escape(name)}\nn = {n}", justify="right")
    grid.add_column("macro\naverage", justify="right")
    for row in view.rows:
        name = escape(row.run) + "\n(oracle)" * row.oracle
        grid.add_row(name, escape("\n".join(row.models)), *map(_cell, row.cells))
    console.print(grid)


def print_outputs(outputs: list[Output], console: Console) -> None:
    """Say where every output lies."""
    for output in outputs:
        console.print(f"{output.name:<24}{escape(str(output.path))}", soft_wrap=True)


def _cell(cell: CellView) -> str:
    text = f"{cell.value}\n{cell.interval}" if cell.interval else cell.value
    return f"[bold]{text}[/bold]" if cell.best else text
