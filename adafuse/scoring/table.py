"""The main table: a row per run, a cell per benchmark."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from adafuse.errors import UserError
from adafuse.methods.selections import is_oracle
from adafuse.scoring.score import Score


@dataclass(frozen=True, slots=True)
class TableRow:
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
class Table:
    """Runs by benchmarks; `note` is what a reader must know before the numbers."""

    benchmarks: tuple[str, ...]
    rows: tuple[TableRow, ...]
    note: str | None


def build_table(
    benchmarks: Sequence[str],
    runs: Mapping[str, tuple[str, Sequence[str]]],
    scores: Sequence[Score],
    note: str | None,
) -> Table:
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
        TableRow(run, method, tuple(models), tuple(cells.get((run, name)) for name in benchmarks))
        for run, (method, models) in runs.items()
    )
    table = Table(tuple(benchmarks), rows, note)
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


def _counts(table: Table, column: int) -> set[int]:
    return {cell.n for row in table.rows if (cell := row.cells[column]) is not None}


def column_n(table: Table, column: int) -> int | None:
    """Return the number of rows that the scores of a column cover; None without scores."""
    return next(iter(_counts(table, column)), None)


def column_metric(table: Table, column: int) -> str:
    """Return the metric of a column; empty without scores."""
    cells = (row.cells[column] for row in table.rows)
    return next((cell.primary for cell in cells if cell is not None), "")


def best_rows(table: Table, column: int | None) -> set[int]:
    """Return the rows with the highest value of a column (None: the macro average), as printed.

    Oracles take no part.
    """
    values = [None if row.oracle else _value(row, column) for row in table.rows]
    shown = [None if value is None else round(value, 1) for value in values]
    top = max((value for value in shown if value is not None), default=None)
    return {number for number, value in enumerate(shown) if value is not None and value == top}


def _value(row: TableRow, column: int | None) -> float | None:
    if column is None:
        return row.macro_average
    cell = row.cells[column]
    return None if cell is None else cell.main.value


def to_csv(table: Table) -> str:
    """Return the table as CSV: values in percent, blank where there is none.

    Four decimals, so that an average recomputed from the cells agrees with the one printed.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    ends = ("", "_low", "_high", "_n")
    cells = [f"{name}{end}" for name in table.benchmarks for end in ends]
    writer.writerow(["run", "method", "models", *cells, "macro_average"])
    for row in table.rows:
        values = [value for cell in row.cells for value in _csv_cell(cell)]
        average = _decimal(row.macro_average)
        writer.writerow([row.run, row.method, "+".join(row.models), *values, average])
    return text.getvalue()


def _csv_cell(cell: Score | None) -> tuple[str, str, str, str]:
    if cell is None:
        return ("", "", "", "")
    main = cell.main
    return (_decimal(main.value), _decimal(main.low), _decimal(main.high), str(cell.n))


def _decimal(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
