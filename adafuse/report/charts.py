"""The report's charts as Vega-Lite: what is pointed at tells its numbers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adafuse.comparison.words_per_round import WordShare
from adafuse.report.facts import Cost
from adafuse.scoring.table import Table, column_metric

if TYPE_CHECKING:
    import altair as alt

Spec = dict[str, Any]

_ROW = 20
"""Pixels per run."""

_PANEL = 400
"""Pixels of a benchmark's width."""


def scores_chart(tables: Mapping[str, Table]) -> Spec:
    """Draw each run's score on each benchmark with its interval, a colour per protocol."""
    rows = [
        {
            "benchmark": f"{name} ({column_metric(table, column)})",
            "run": row.run,
            "models": "+".join(row.models),
            "protocol": protocol,
            "score": cell.main.value,
            "low": cell.main.low,
            "high": cell.main.high,
            "n": cell.n,
        }
        for protocol, table in tables.items()
        for column, name in enumerate(table.benchmarks)
        for row in table.rows
        if (cell := row.cells[column]) is not None
    ]
    return _intervals(rows, "score", "percent, with 95 % intervals", "protocol")


def seconds_chart(costs: Iterable[Cost]) -> Spec:
    """Draw the seconds per example."""
    rows = [
        {
            "benchmark": cost.benchmark,
            "run": cost.run,
            "seconds": cost.seconds.value,
            "low": cost.seconds.low,
            "high": cost.seconds.high,
            "n": cost.n - cost.errors,
        }
        for cost in costs
        if cost.seconds is not None
    ]
    return _intervals(rows, "seconds", "seconds per example, with 95 % intervals", None)


def words_chart(shares: Sequence[WordShare]) -> Spec:
    """Draw the share of rounds by how many words they committed, as stacked bars."""
    import altair as alt

    rows = [
        {
            "benchmark": each.benchmark,
            "run": each.run,
            "words": each.words,
            "share": each.share,
            "low": each.low,
            "high": each.high,
            "rounds": each.rounds,
            "n": each.n,
        }
        for each in shares
    ]
    chart = (
        alt.Chart(_data(rows), width=_PANEL, height=alt.Step(_ROW))
        .mark_bar()
        .encode(
            x=alt.X("share:Q", title="percent of rounds").scale(domain=[0, 100]),
            y=alt.Y("run:N", title=None, sort=None),
            color=alt.Color("words:O", title="words").scale(scheme="blues"),
            order=alt.Order("words:O"),
            tooltip=_tooltip(rows),
        )
    )
    return _panels(chart, rows)


def _intervals(rows: list[dict[str, Any]], value: str, title: str, colour: str | None) -> Spec:
    import altair as alt

    encoding: dict[str, Any] = {
        "y": alt.Y("run:N", title=None, sort=None),
        "tooltip": _tooltip(rows),
    }
    if colour:
        legend = alt.Legend(orient="top")
        encoding["yOffset"] = alt.YOffset(f"{colour}:N", sort=None)
        encoding["color"] = alt.Color(f"{colour}:N", sort=None, legend=legend)
    base = alt.Chart(_data(rows), width=_PANEL, height=alt.Step(_ROW)).encode(**encoding)
    bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=title), x2="high:Q")
    dots = base.mark_point(filled=True, size=55, opacity=1).encode(x=alt.X(f"{value}:Q"))
    return _panels(alt.layer(bars, dots), rows)


def _panels(
    chart: "alt.Chart | alt.LayerChart | alt.FacetChart", rows: Sequence[Mapping[str, Any]]
) -> Spec:
    import altair as alt

    names = list(dict.fromkeys(row["benchmark"] for row in rows))
    header = alt.Header(title=None, labelFontSize=12, labelFontWeight="bold", labelAnchor="start")
    facet = alt.Facet("benchmark:N", sort=names, header=header)
    spec: Spec = chart.facet(facet=facet, columns=2).resolve_scale(x="independent").to_dict()
    return spec


def _data(rows: list[dict[str, Any]]) -> "alt.InlineData":
    import altair as alt

    return alt.InlineData(values=rows)


def _tooltip(rows: Sequence[Mapping[str, Any]]) -> "list[alt.Tooltip]":
    import altair as alt

    first = rows[0] if rows else {}
    return [
        alt.Tooltip(f"{name}:Q", format=".4~f")
        if isinstance(value, float)
        else alt.Tooltip(f"{name}:N")
        for name, value in first.items()
    ]
