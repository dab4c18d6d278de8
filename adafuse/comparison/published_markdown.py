"""The paper's numbers as a section of their own, to stand below a table of ours."""

from collections.abc import Sequence

from adafuse.comparison.published import Published, PublishedRow
from adafuse.scoring.markdown import escape

TITLE = "## Published by the paper (not measured here)"


def published_section(published: Published, benchmarks: Sequence[str], protocol: str) -> str:
    """Return Table 1 of the paper for those of `benchmarks` that it has; empty if it has none.

    The paper's numbers never share a column with ours: this is a table of its own, and it says
    under which protocol ours can be compared with them.

    Args:
        published: the paper's numbers.
        benchmarks: the columns of our table, in their order.
        protocol: how the scores of our table above the section were scored.
    """
    shown = [name for name in benchmarks if name in published.main.benchmarks]
    if not shown:
        return ""
    whole = set(shown) == set(published.main.benchmarks)
    averages = ["average as printed", "average of the cells"] if whole else []
    head = ["row", *map(escape, shown), *averages]
    rule = ["---"] + ["---:"] * (len(head) - 1)
    columns = [published.main.benchmarks.index(name) for name in shown]
    rows = [_row(row, columns, whole) for row in published.main.rows]
    lines = [*_preamble(published, protocol), _line(head), _line(rule), *rows, ""]
    lines += [f"\\* {escape(published.note)}", ""] if whole else []
    return "\n".join(lines)


def _preamble(published: Published, protocol: str) -> list[str]:
    same = protocol == published.protocol
    verdict = "as the table above" if same else f"not {escape(protocol)} as the table above"
    return [
        f"{TITLE}\n",
        f"{escape(published.main.title)} of {escape(published.source)};"
        f" {escape(published.main.setting)}. In percent; the paper gives neither intervals nor"
        f" numbers of rows. Its scorer corresponds to the protocol"
        f" {escape(published.protocol)}, {verdict}: compare these numbers only with runs scored"
        f" under {escape(published.protocol)}.\n",
    ]


def _row(row: PublishedRow, columns: Sequence[int], whole: bool) -> str:
    cells = [escape(row.name), *(f"{row.values[column]:.2f}" for column in columns)]
    if whole:
        mark = r" \*" if row.flagged else ""
        cells += [f"{row.printed_average:.2f}{mark}", f"{row.average:.2f}{mark}"]
    return _line(cells)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
