"""Both protocols in one document, each in a table of its own, and the difference between them."""

from adafuse.scoring.markdown import escape, to_markdown
from adafuse.scoring.score import Score
from adafuse.scoring.table import Table, TableRow

_PUBLISHED = (
    "The rules of the scorer behind the paper's Table 1, for comparison with its numbers; they let"
    " wrong answers through (audit.md shows which). That scorer finds rows by lower-cased question,"
    " so that it keeps 2,496 of the 2,500 SQuAD rows; this one finds them by id and keeps all."
)


def protocols_markdown(strict: Table, published: Table) -> str:
    """Return the strict table, then the published one, then published - strict in points."""
    parts = [
        to_markdown(strict),
        "## Published scorer\n",
        f"{_PUBLISHED}\n",
        to_markdown(Table(published.benchmarks, published.rows, None), "published"),
        "## Published minus strict, in points\n",
        _differences(strict, published),
    ]
    return "\n".join(parts)


def _differences(strict: Table, published: Table) -> str:
    head = ["run", *map(escape, strict.benchmarks), "macro average"]
    rule = ["---", *["---:"] * (len(head) - 1)]
    rows = [_row(a, b) for a, b in zip(strict.rows, published.rows, strict=True)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *rows))


def _row(strict: TableRow, published: TableRow) -> list[str]:
    cells = zip(strict.cells, published.cells, strict=True)
    averages = _points(strict.macro_average, published.macro_average)
    return [escape(strict.run), *(_points(_value(a), _value(b)) for a, b in cells), averages]


def _value(cell: Score | None) -> float | None:
    return None if cell is None else cell.main.value


def _points(strict: float | None, published: float | None) -> str:
    return "" if strict is None or published is None else f"{published - strict:+.1f}"
