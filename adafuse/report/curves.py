"""Figures whose axes are both numbers: sweeps, scores over cost, and the calibration of gates."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import altair as alt
import polars as pl

from adafuse.metrics.intervals import INTERVALS
from adafuse.metrics.registry import metric_named
from adafuse.report import charts

_SWEEP = f"Bands and bars: 95 % intervals ({INTERVALS})."
_FRONTIER = (
    "Forward passes of all models together, over the tokens of the text. Line: runs that no other"
    " one beats at their cost or less. Tick on a dotted line: the best score of one of the run's"
    " models with at most as many passes per example, chosen with knowledge of the answers."
    " Dashed: oracles and choices between runs, at no known cost."
    " Costs are those of the decode jobs, not of the method alone: how many passes drafts spare"
    " depends on the batch size, the shards, and the rows decoded before in the same job."
    f" Bars: 95 % intervals ({INTERVALS})."
)
_GATES = (
    "Above: how often the gate's likeliest candidate is a best one, in five bins of the probability"
    " that the gate gives it; dashed: the rule mean_nll. Below: what the gate adds to the"
    " score, and what of that is lost without a feature. All on rows that it was not fitted on"
    " (five folds)."
)

_DASHES = ([1, 0], [5, 3], [7, 3, 2, 3], [2, 2])
_HEIGHT, _LONGEST_SERIES = 130, 105
_FEW = 12
"""Integer values up to this many get a tick each."""


def draw_sweep(title: str, table: pl.DataFrame) -> charts.Spec:
    """Draw every series with its intervals; a legend names them if there are several."""
    labels = {name: charts.broken(name, _LONGEST_SERIES) for name in table["series"].unique()}
    table = table.with_columns(pl.col("series").replace_strict(labels))
    series = table["series"].unique(maintain_order=True).to_list()
    protocols = table.partition_by("protocol", maintain_order=True)
    columns = charts.balanced(max(group["benchmark"].n_unique() for group in protocols), 3)
    width = charts.fitted(columns, 0)[1] - 50
    rows = []
    for group in protocols:  # each begins a row of its own
        parts = group.partition_by("benchmark", maintain_order=True)
        rows.append(
            charts.beside([_sweep_panel(points, series, width) for points in parts], columns)
        )
    legend = series if len(series) > 1 else ()
    return charts.figure(
        charts.composed("vconcat", rows), title, _SWEEP + charts.notes(table), legend
    )


def _sweep_panel(points: pl.DataFrame, series: Sequence[str], width: int) -> charts.Spec:
    # Later series are drawn over earlier ones, which are larger: both are seen where they agree.
    sizes = {name: 30 + 35 * min(3, after) for after, name in enumerate(reversed(series))}
    facts = _facts(points, "series", "x", "value", "low", "high", "n")
    values = facts.with_columns(
        lonely=pl.len().over("series") == 1,
        size=pl.col("series").replace_strict(sizes, return_dtype=pl.Int64),
    )
    split = "split(datum.label, '\\n')"
    legend = alt.Legend(symbolOpacity=1, labelExpr=split, symbolDash=[1, 0])
    colour, shape = charts.series_encodings("series", series, legend if len(series) > 1 else None)
    x = alt.X("x:Q", axis=_value_axis(points), scale=alt.Scale(zero=False, padding=8))
    base = charts.inline(values).encode(x=x, color=colour, tooltip=charts.tooltips(facts))
    ends = pl.concat([points[name].drop_nulls() for name in ("value", "low", "high")])
    low, high = min(ends), max(ends)
    room = 0.04 * (high - low) or 1.0
    scale = alt.Scale(domain=[low - room, high + room], nice=False, zero=False)
    y = alt.Y("value:Q", scale=scale, axis=alt.Axis(tickCount=5))
    interval = {"y": alt.Y("low:Q", title=charts.score_axis(points["metric"])), "y2": "high:Q"}
    dashes = alt.StrokeDash("series:N", **charts.look(series, _DASHES, None))
    layers = (
        base.transform_filter("!datum.lonely").mark_area(opacity=0.15).encode(**interval),
        base.transform_filter("datum.lonely").mark_rule(strokeWidth=1.4).encode(**interval),
        base.encode(y=y, strokeDash=dashes).mark_line(strokeWidth=1.6),
        base.mark_point(filled=True, opacity=1).encode(
            y=y, shape=shape, size=alt.Size("size:Q", scale=None)
        ),
    )
    return charts.layered(layers, width, _HEIGHT, title=_panel_title(points))


def _facts(table: pl.DataFrame, *names: str) -> pl.DataFrame:
    """Return what a tooltip says, with what is known of rows cut, failed or decoded earlier."""
    return table.select(
        *names, *(n for n in ("cut", "beyond", "failed", "earlier") if n in table.columns)
    )


def _panel_title(panel: pl.DataFrame) -> alt.TitleParams:
    """Name what a panel of one benchmark under one protocol shows."""
    first = panel.row(0, named=True)
    metric = metric_named(first["metric"])
    head = charts.broken(f"{first['benchmark']}, {metric.label}{metric.note}", 34).split("\n")
    return charts.heading([*head, f"{first['protocol']} scoring, {charts.counted(first['n'])}"])


def _value_axis(points: pl.DataFrame) -> alt.Axis:
    """Name the option, or whose is which; few whole numbers get a tick each."""
    owners = points.select("option", "method").unique(maintain_order=True)
    title = owners["option"].unique(maintain_order=True).to_list()
    if len(title) > 1:
        title = [f"{option} ({method})" for option, method in owners.iter_rows()]
    distinct = points["x"].unique().sort().to_list()
    ticks: dict[str, Any] = {"tickCount": 6}
    if points["x"].dtype.is_integer():
        ticks = {"values": distinct} if len(distinct) <= _FEW else {"tickMinStep": 1}
    return alt.Axis(title=title, labelOverlap=True, **ticks)


def draw_frontier(title: str, table: pl.DataFrame) -> charts.Spec:
    """Draw every score over its cost; a line joins those that no other run beats."""
    table = table.with_columns(series=charts.LABEL)
    series = table["series"].unique(maintain_order=True).to_list()
    panels = table.partition_by("protocol", "benchmark", maintain_order=True)
    columns = charts.balanced(len(panels), 2)
    width = charts.fitted(columns, 0)[1] - 50
    drawn = [_frontier_panel(panel, series, width) for panel in panels]
    return charts.figure(
        charts.beside(drawn, columns), title, _FRONTIER + charts.notes(table), series
    )


def _frontier_panel(panel: pl.DataFrame, series: Sequence[str], width: int) -> charts.Spec:
    costs = ("forwards_per_token", "forwards", "evaluated", "seconds_mean")
    member = ("equal_forwards", "equal_forwards_value")
    facts = _facts(panel, "series", "value", "low", "high", *costs, *member)
    tight = alt.Scale(zero=False, padding=10)
    x = alt.X("forwards_per_token:Q", title="forward passes per token", scale=tight)
    y = alt.Y("value:Q", title=charts.score_axis(panel["metric"]), scale=tight)
    colour, shape = charts.series_encodings("series", series, alt.Legend(symbolOpacity=1))
    base = charts.inline(facts.with_columns(best=panel["best"])).encode(
        tooltip=charts.tooltips(facts)
    )
    known = base.transform_filter("isValid(datum.forwards_per_token)")
    unknown = base.transform_filter("!isValid(datum.forwards_per_token)")
    dots = known.encode(x=x, y=y, color=colour, shape=shape)
    alone = known.transform_filter("isValid(datum.equal_forwards_value)")
    at_equal = alt.Y("equal_forwards_value:Q")
    layers = (
        known.transform_filter("datum.best")
        .mark_line(color=charts.GREY, strokeWidth=1)
        .encode(x=x, y=y),
        unknown.mark_rule(strokeDash=[5, 3], strokeWidth=1.4).encode(y=y, color=colour),
        known.mark_rule(strokeWidth=1, opacity=0.5).encode(
            x=x, y="low:Q", y2="high:Q", color=colour
        ),
        alone.mark_rule(strokeDash=[1, 2], strokeWidth=1.2).encode(
            x=x, y=y, y2="equal_forwards_value:Q", color=colour
        ),
        alone.mark_tick(thickness=1.6, width=11).encode(x=x, y=at_equal, color=colour),
        dots.transform_filter("!datum.earlier").mark_point(filled=True, opacity=1, size=60),
        dots.transform_filter("datum.earlier > 0").mark_point(fill="white", opacity=1, size=54),
    )
    return charts.layered(layers, width, _HEIGHT + 60, title=_panel_title(panel))


def draw_gates(title: str, table: pl.DataFrame) -> charts.Spec:
    """Draw a calibration curve per benchmark and run, and below the importance of each feature."""
    runs = table["run"].unique(maintain_order=True).to_list()
    names = table["benchmark"].unique(maintain_order=True).to_list()
    titles = {name: charts.broken(name, 20).split("\n") for name in names}
    lost = table.filter(part="importance")
    columns, width = charts.fitted(len(names), charts.text_width(lost["name"]))
    curves = table.filter(part="calibration").partition_by("benchmark", maintain_order=True)
    rows = [
        charts.beside([_calibration_panel(group, runs, width, titles) for group in curves], columns)
    ]
    if len(lost):
        turns = enumerate(zip(runs, cycle(charts.COLOURS), cycle(charts.SHAPES)))
        layers = {run: charts.Layer(colour, shape, n) for n, (run, colour, shape) in turns}
        marks = lost.select(
            "benchmark", "value", row="name", scored="run", low=None, high=None, hollow=False
        )
        units = " or ".join(lost["unit"].unique(maintain_order=True))
        dots = charts.Dots(marks, layers, units, titles, zero=True)
        rows.append(charts.beside(dots.panels(width, columns), columns))
    return charts.figure(charts.composed("vconcat", rows), title, _GATES, runs)


def _calibration_panel(
    table: pl.DataFrame, runs: Sequence[str], width: int, titles: Mapping[str, Sequence[str]]
) -> charts.Spec:
    facts = table.select("run", "name", "chance", "value", "rounds")
    scale = alt.Scale(domain=[0, 100])
    ticks = alt.Axis(title="probability of the choice", values=[0, 50, 100])
    x = alt.X("chance:Q", axis=ticks, scale=scale)
    y = alt.Y("value:Q", title="best choices in percent", scale=scale)
    colour, shape = charts.series_encodings("run", runs, alt.Legend(symbolOpacity=1))
    base = charts.inline(facts).encode(x=x, y=y, color=colour, tooltip=charts.tooltips(facts))
    learned = base.transform_filter("datum.name == 'learned'")
    rule = base.transform_filter("datum.name != 'learned'")
    diagonal = charts.inline(pl.DataFrame({"chance": [0, 100], "value": [0, 100]}))
    layers = (
        diagonal.mark_line(color=charts.GREY, strokeWidth=1).encode(x=x, y=y),
        rule.mark_line(strokeDash=[4, 3], strokeWidth=1.2, opacity=0.6),
        learned.mark_line(strokeWidth=1.6),
        learned.mark_point(filled=True, opacity=1).encode(shape=shape),
    )
    title = charts.heading(titles[table["benchmark"][0]])
    return charts.layered(layers, width, 150, title=title)
