"""The figures of the experiments and the charts of the report's page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import altair as alt
import polars as pl

from adafuse.metrics.intervals import INTERVALS
from adafuse.metrics.measures import Cost, WordShare
from adafuse.metrics.registry import metric_named
from adafuse.metrics.score import MANY_CUT
from adafuse.models.spec import DeviceName
from adafuse.report import experiments
from adafuse.report.charts import (
    BLACK,
    BLUE,
    COLOURS,
    CROSS,
    GREY,
    LONGEST_LABEL,
    PAGE_PANEL,
    SHAPES,
    VERMILLION,
    Dots,
    Layer,
    Spec,
    balanced,
    beside,
    broken,
    by_row,
    counted,
    dot_plot,
    figure,
    fitted,
    look,
    page_chart,
    row_height,
    row_labels,
    shades,
    text_width,
    tooltips,
)
from adafuse.report.experiments import Experiment
from adafuse.report.gates import draw_gates, gates
from adafuse.report.main_table import MACRO_AVERAGE, ScoreTable

PROTOCOL_COLOURS = {"strict": BLUE, "published": VERMILLION}

_PAPER = "the paper's numbers (compare with published scoring only)"
_SCORES = {
    "": f"95 % intervals ({INTERVALS}).",
    "average": "The macro average is the mean of a run's scores.",
    "oracle": (
        "Hollow (oracle): chosen with the answers of the very rows that are scored; an upper bound"
        " for choosing, not a method."
    ),
    "development": "(development): chosen by scores on other rows.",
    "paper": (
        "Crosses: the paper's own numbers, which were not measured here; they are comparable only"
        " with our scores under the published protocol."
    ),
}
_PAIRED = (
    "First run minus second run, on the same rows, with 95 % intervals (accuracies: Newcombe, for"
    " paired proportions; others: paired bootstrap). Filled: p below 0.05 after Holm's correction"
    " for all pairs of the benchmark (McNemar's exact test; others: paired bootstrap and"
    " randomization), an interval without 0, and about as many answers cut. Hollow: no significant"
    " difference."
)
_SWEEP = f"Bands and bars: 95 % intervals ({INTERVALS})."
_FRONTIER = (
    "Forward passes of all models together, over the tokens of the text. Line: runs that no other"
    " one beats at their cost or less. Dashed: oracles and choices between runs, at no known cost."
    " Costs are those of the decode jobs, not of the method alone: how many passes drafts spare"
    " depends on the batch size, the shards, and the rows decoded before in the same job."
    f" Bars: 95 % intervals ({INTERVALS})."
)
_EARLIER = "Hollow, with rows decoded in an earlier attempt or for another run, at another cost"
_WORDS = (
    "Shares of the n rounds that committed at least one word. The 95 % intervals (Wilson) are in"
    " the CSV file."
)
_RELATIVE = (
    "Factors on the right: mean relative to the sum of the means of the run's models, each decoding"
    " on its own."
)
_BATCHED = "Examples that are decoded together share their time."
_UNTIMED = "Other jobs may have run on the machine at the same time."

_MEDIAN, _MEAN = "median, bar: quartiles", "mean, bar: 95 % interval (bootstrap)"
_TIMES = {_MEDIAN: Layer(BLUE, "circle", 0), _MEAN: Layer(VERMILLION, "diamond", 1)}

_DASHES = ([1, 0], [5, 3], [7, 3, 2, 3], [2, 2])
_SWEEP_COLUMNS, _SWEEP_HEIGHT, _LONGEST_SERIES = 3, 130, 105
_NAMED = 6
"""Runs of which limits cut many answers are named up to here."""
_FEW = 12
"""Integer values up to this many get a tick each."""

_WORD_ROW = 24
_FITS = 26
"""Pixels in which a number of two digits can be read."""


_LABEL = (
    pl.when(pl.col("selection") == "")
    .then(pl.col("run"))
    .otherwise(pl.format("{} ({})", "run", "selection"))
)
"""The name of a run, and what a reader must know of its selection."""

_SCORED_BY = pl.format("{} scoring", "protocol")


def measured(experiment: Experiment) -> tuple[pl.DataFrame, alt.VConcatChart]:
    """Measure and draw an experiment."""
    measure, draw = _KINDS[experiment.section.kind]
    table = measure(experiment)
    return table, draw(experiment.section.title, table)


def _notes(scores: pl.DataFrame) -> str:
    rows = [row for row in scores.to_dicts() if row["benchmark"] != MACRO_AVERAGE]
    cut = [f"{_of(r)} ({r['cut']:.0f} %)" for r in rows if (r.get("cut") or 0.0) > MANY_CUT]
    failed = [f"{_of(r)} ({r['failed']})" for r in rows if r.get("failed")]
    earlier = [f"{_of(r)} ({counted(r['earlier'])})" for r in rows if r.get("earlier")]
    notes = {"Answers cut by limits": cut, "Rows that failed, counted as wrong": failed}
    notes |= {_EARLIER: earlier}
    return "".join(f" {note}: {_some([*dict.fromkeys(n)])}." for note, n in notes.items() if n)


def _of(row: Mapping[str, Any]) -> str:
    return f"{row['run']} on {row['benchmark']}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)
    return f"{', '.join(names[:_NAMED])}{more}"


def draw_scores(title: str, scores: pl.DataFrame) -> alt.VConcatChart:
    """Draw every score with its interval; oracles hollow, the paper's values as crosses."""
    scores = scores.with_columns(row=_LABEL)
    layers = protocol_layers(scores["protocol"])
    oracle = pl.col("selection") == "oracle"
    marks = _marks(scores, _SCORED_BY, "value", "low", "high", hollow=oracle)
    parts = {"", *scores["selection"]}
    parts |= {"average"} if MACRO_AVERAGE in scores["benchmark"] else set()
    paper = scores.drop_nulls("paper")
    if len(paper):
        parts |= {"paper"}
        layers[_PAPER] = Layer(BLACK, CROSS, layers[f"{paper['protocol'][0]} scoring"].height)
        crosses = _marks(paper, pl.lit(_PAPER), "paper", None, None)
        marks = pl.concat([marks, crosses], how="vertical_relaxed")
    caption = " ".join(text for part, text in _SCORES.items() if part in parts) + _notes(scores)
    titles = _titles(scores)
    return dot_plot(Dots(marks, layers, "score in percent", titles, span=10.0), title, caption)


def draw_paired(title: str, table: pl.DataFrame) -> alt.VConcatChart:
    """Draw every difference with its interval; significant ones are filled."""
    labels = dict(table.select("run", label=_LABEL).iter_rows())
    against = pl.col("against").replace(labels)
    row = pl.format("{}\n\N{MINUS SIGN} {}", _LABEL, against)
    tests = table.drop_nulls("against").with_columns(row=row)
    names = ("difference", "difference_low", "difference_high")
    marks = _marks(tests, _SCORED_BY, *names, hollow=~pl.col("significant"))
    layers = protocol_layers(tests["protocol"])
    dots = Dots(marks, layers, "difference in points", _titles(tests), zero=True)
    return dot_plot(dots, title, _PAIRED + _notes(table))


def draw_runtime(title: str, times: pl.DataFrame) -> alt.VConcatChart:
    """Draw median with quartiles and mean with interval of every run."""
    times = times.with_columns(row=_LABEL)
    quartiles = ("seconds_quartile_1", "seconds_quartile_3")
    ends = ("seconds_mean_low_bootstrap95", "seconds_mean_high_bootstrap95")
    median = _marks(times, pl.lit(_MEDIAN), "seconds_median", *quartiles)
    mean = _marks(times, pl.lit(_MEAN), "seconds_mean", *ends)
    titles, factors = {}, {}
    for (name,), group in times.group_by("benchmark"):
        sizes = f"{min(group['n']):,}", f"{max(group['n']):,}"
        titles[str(name)] = [*_lines(str(name)), "n = " + " to ".join(dict.fromkeys(sizes))]
        related = group.drop_nulls("mean_relative_to_members")
        factors[str(name)] = {
            row: f"{factor:.2f}\N{MULTIPLICATION SIGN}"
            for row, factor in related.select("row", "mean_relative_to_members").iter_rows()
        }
    marks = pl.concat([median, mean])
    dots = Dots(marks, _TIMES, "seconds per example", titles, factors, zero=True)
    return dot_plot(dots, title, _conditions(times))


def _marks(
    table: pl.DataFrame,
    scored: pl.Expr,
    value: str,
    low: str | None,
    high: str | None,
    hollow: pl.Expr | bool = False,
) -> pl.DataFrame:
    return table.select(
        "benchmark", "row", scored=scored, value=value, low=low, high=high, hollow=hollow
    )


def _conditions(times: pl.DataFrame) -> str:
    first = times.row(0, named=True)
    device = DeviceName.parse(first["devices"].split()[0]).kind
    parts = {
        f"Batch size {first['batch_size']}, {first['dtype']}, device {device}.": True,
        _RELATIVE: times["mean_relative_to_members"].count() > 0,
        _BATCHED: first["batch_size"] > 1,
        _UNTIMED: not times["timed"].all(),
    }
    return " ".join(text for text, applies in parts.items() if applies)


def page_scores(tables: Mapping[str, ScoreTable]) -> Spec:
    """Draw each run's score on each benchmark with its interval, for the report's page."""
    marks = [
        {
            "benchmark": f"{column.name} ({column.metric.label})",
            "row": row.run,
            "scored": f"{protocol} scoring",
            **asdict(cell.score.main),
            "models": "+".join(row.models),
            "n": cell.score.n,
            "cut": cell.score.cut_share,
            "failed": cell.failed,
        }
        for protocol, table in tables.items()
        for number, column in enumerate(table.columns)
        for row in table.rows
        if (cell := row.cells[number]).score is not None
    ]
    return _page_dots(marks, protocol_layers(tables), "percent, with 95 % intervals")


def page_seconds(costs: Sequence[Cost]) -> Spec:
    """Draw the seconds per example of those that decoded some, for the report's page."""
    marks = [
        {"benchmark": cost.benchmark, "row": cost.run, "scored": "mean"}
        | asdict(cost.seconds)
        | {"n": cost.n - cost.errors}
        for cost in costs
        if cost.seconds is not None
    ]
    layers = {"mean": Layer(BLUE, "circle", 0)}
    return _page_dots(marks, layers, "seconds per example, with 95 % intervals")


def _page_dots(marks: Sequence[Mapping[str, Any]], layers: Mapping[str, Layer], unit: str) -> Spec:
    if not marks:
        return {}
    table = pl.DataFrame(marks).with_columns(hollow=False)
    dots = Dots(table, layers, unit, {name: [name] for name in table["benchmark"].unique()})
    return page_chart(dots.panels(PAGE_PANEL))


def protocol_layers(protocols: Iterable[str]) -> dict[str, Layer]:
    """Return a layer for each protocol, in the order of their first occurrence."""
    return {
        f"{name} scoring": Layer(PROTOCOL_COLOURS[name], SHAPES[number], number)
        for number, name in enumerate(dict.fromkeys(protocols))
    }


def _titles(table: pl.DataFrame) -> dict[str, list[str]]:
    return {group["benchmark"][0]: _title(group) for group in table.partition_by("benchmark")}


def _title(group: pl.DataFrame) -> list[str]:
    """Return benchmark, metric and number of rows."""
    name, metric = group["benchmark"][0], metric_named(group["metric"][0]).label
    sizes = dict(group.drop_nulls("n").select("protocol", "n").iter_rows())
    if not sizes:
        return [name]
    if len(set(sizes.values())) == 1:
        return [*_lines(name), f"{metric}, {counted(next(iter(sizes.values())))}"]
    counts = [f"{counted(n)} ({protocol})" for protocol, n in sizes.items()]
    return [*_lines(f"{name}, {metric}"), *counts]


def _lines(name: str) -> list[str]:
    return broken(name, 20).split("\n")


def draw_sweep(title: str, table: pl.DataFrame) -> alt.VConcatChart:
    """Draw every series with its intervals; a legend names them if there are several."""
    labels = {name: broken(name, _LONGEST_SERIES) for name in table["series"].unique()}
    table = table.with_columns(pl.col("series").replace_strict(labels))
    series = table["series"].unique(maintain_order=True).to_list()
    protocols = table.partition_by("protocol", maintain_order=True)
    most = max(group["benchmark"].n_unique() for group in protocols)
    columns = balanced(most, _SWEEP_COLUMNS)
    width = fitted(columns, 0)[1] - 50
    rows = []
    for group in protocols:  # each begins a row of its own
        parts = group.partition_by("benchmark", maintain_order=True)
        rows.append(beside([_sweep_panel(points, series, width) for points in parts], columns))
    return figure(
        alt.vconcat(*rows), title, _SWEEP + _notes(table), series if len(series) > 1 else ()
    )


def _sweep_panel(
    points: pl.DataFrame, series: Sequence[str], width: int
) -> alt.LayerChart | alt.FacetChart:
    # Later series are drawn over earlier ones, which are larger: both are seen where they agree.
    sizes = {name: 30 + 35 * min(3, after) for after, name in enumerate(reversed(series))}
    facts = _facts(points, "series", "x", "value", "low", "high", "n")
    values = facts.with_columns(
        lonely=pl.len().over("series") == 1,
        size=pl.col("series").replace_strict(sizes, return_dtype=pl.Int64),
    )
    split = "split(datum.label, '\\n')"
    legend = (
        alt.Legend(symbolOpacity=1, labelExpr=split, symbolDash=[1, 0]) if len(series) > 1 else None
    )
    told = partial(look, series, legend)
    base = alt.Chart(alt.InlineData(values.to_dicts())).encode(
        x=alt.X("x:Q", axis=_value_axis(points), scale=alt.Scale(zero=False, padding=8)),
        color=alt.Color("series:N", **told(COLOURS)),
        tooltip=tooltips(facts),
    )
    found = pl.concat([points[name].drop_nulls() for name in ("value", "low", "high")])
    low, high = min(found), max(found)
    room = 0.04 * (high - low) or 1.0
    scale = alt.Scale(domain=[low - room, high + room], nice=False, zero=False)
    y = alt.Y("value:Q", scale=scale, axis=alt.Axis(tickCount=5))
    ends = {"y": alt.Y("low:Q", title="score in percent"), "y2": "high:Q"}
    lines = base.encode(
        y=y, strokeDash=alt.StrokeDash("series:N", **{**told(_DASHES), "legend": None})
    )
    layers = (
        base.transform_filter("!datum.lonely").mark_area(opacity=0.15).encode(**ends),
        base.transform_filter("datum.lonely").mark_rule(strokeWidth=1.4).encode(**ends),
        lines.mark_line(strokeWidth=1.6),
        base.mark_point(filled=True, opacity=1).encode(
            y=y,
            shape=alt.Shape("series:N", **told(SHAPES)),
            size=alt.Size("size:Q", scale=None),
        ),
    )
    return alt.layer(*layers, title=_panel_title(points), width=width, height=_SWEEP_HEIGHT)


def _facts(table: pl.DataFrame, *names: str) -> pl.DataFrame:
    """Return what a tooltip says, with what is known of rows cut, failed or decoded earlier."""
    return table.select(*names, *(n for n in ("cut", "failed", "earlier") if n in table.columns))


def _panel_title(panel: pl.DataFrame) -> alt.TitleParams:
    """Name what a panel of one benchmark under one protocol shows."""
    first = panel.row(0, named=True)
    head = broken(f"{first['benchmark']}, {metric_named(first['metric']).label}", 34).split("\n")
    below = f"{first['protocol']} scoring, {counted(first['n'])}"
    return alt.TitleParams([*head, below], anchor="start", frame="group")


def draw_frontier(title: str, table: pl.DataFrame) -> alt.VConcatChart:
    """Draw every score over its cost; a line joins those that no other run beats."""
    table = table.with_columns(series=_LABEL)
    series = table["series"].unique(maintain_order=True).to_list()
    panels = table.partition_by("protocol", "benchmark", maintain_order=True)
    columns = balanced(len(panels), 2)
    width = fitted(columns, 0)[1] - 50
    drawn = [_frontier_panel(panel, series, width) for panel in panels]
    return figure(beside(drawn, columns), title, _FRONTIER + _notes(table), series)


def _frontier_panel(
    panel: pl.DataFrame, series: Sequence[str], width: int
) -> alt.LayerChart | alt.FacetChart:
    costs = ("forwards_per_token", "seconds_mean")
    facts = _facts(panel, "series", "value", "low", "high", *costs)
    values = facts.with_columns(best=panel["best"])
    told = partial(look, series, alt.Legend(symbolOpacity=1))
    x = alt.X("forwards_per_token:Q", title="forward passes per token", scale=_tight())
    y = alt.Y("value:Q", title="score in percent", scale=_tight())
    base = alt.Chart(alt.InlineData(values.to_dicts())).encode(tooltip=tooltips(facts))
    known = base.transform_filter("isValid(datum.forwards_per_token)")
    colour = alt.Color("series:N", **told(COLOURS))
    dots = known.encode(x=x, y=y, color=colour, shape=alt.Shape("series:N", **told(SHAPES)))
    layers = (
        known.transform_filter("datum.best").mark_line(color=GREY, strokeWidth=1).encode(x=x, y=y),
        base.transform_filter("!isValid(datum.forwards_per_token)")
        .mark_rule(strokeDash=[5, 3], strokeWidth=1.4)
        .encode(y=y, color=colour),
        known.mark_rule(strokeWidth=1, opacity=0.5).encode(
            x=x, y="low:Q", y2="high:Q", color=colour
        ),
        dots.transform_filter("!datum.earlier").mark_point(filled=True, opacity=1, size=60),
        dots.transform_filter("datum.earlier > 0").mark_point(fill="white", opacity=1, size=54),
    )
    return alt.layer(*layers, title=_panel_title(panel), width=width, height=_SWEEP_HEIGHT + 60)


def _tight() -> alt.Scale:
    return alt.Scale(zero=False, padding=10)


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


def draw_words(title: str, shares: pl.DataFrame) -> alt.VConcatChart:
    """Draw the shares of every run as parts of one bar, with n at its end."""
    shares = shares.with_columns(row=_LABEL)
    rows = shares["row"].unique(maintain_order=True).to_list()
    groups = shares.partition_by("benchmark", maintain_order=True)
    left = text_width(broken(row, LONGEST_LABEL) for row in rows)
    columns, width = fitted(len(groups), left, text_width(map(counted, shares["n"])))
    most = max(shares["words"])
    panels = [
        _words_panel(group, rows, width, most, named=number % columns == 0)
        for number, group in enumerate(groups)
    ]
    return figure(beside(panels, columns), title, _WORDS, [f"{most} words"])


def page_words(shares: Sequence[WordShare]) -> Spec:
    """Draw the shares of rounds by how many words they committed, for the report's page."""
    if not shares:
        return {}
    table = pl.DataFrame(shares).rename({"run": "row"})
    panels = []
    for group in table.partition_by("benchmark", maintain_order=True):
        rows = group["row"].unique(maintain_order=True).to_list()
        panels.append(_words_panel(group, rows, PAGE_PANEL, max(table["words"]), named=True))
    return page_chart(panels)


def _words_panel(
    shares: pl.DataFrame, rows: Sequence[str], width: int, most: int, *, named: bool
) -> alt.LayerChart | alt.FacetChart:
    names = {number: f"{number} word{'s' * (number > 1)}" for number in range(1, most + 1)}
    facts = shares.select(
        "row", pl.col("words").replace_strict(names), "share", "low", "high", "rounds", "n"
    )
    fits = pl.col("share") * width / 100 >= _FITS
    values = facts.with_columns(number=shares["words"], fits=fits)
    middle = pl.col("share").cum_sum().over("row") - pl.col("share") / 2
    inside = values.sort("number", maintain_order=True).with_columns(middle=middle).filter("fits")
    share = alt.X(
        "share:Q", stack="zero", scale=alt.Scale(domain=[0, 100]),
        axis=alt.Axis(title="share of rounds in percent", tickCount=max(2, min(5, width // 40))),
    )  # fmt: skip
    # Light to dark: lightness tells the shades apart without colour.
    colours = alt.Scale(domain=list(names.values()), range=shades(most))
    base = alt.Chart(alt.InlineData(values.to_dicts())).encode(
        y=by_row(rows), order=alt.Order("number:O")
    )
    bars = base.mark_bar(height=_WORD_ROW - 6).encode(
        x=share, color=alt.Color("words:N", scale=colours), tooltip=tooltips(facts)
    )
    ink = alt.condition(f"datum.number > {most / 2}", alt.value("white"), alt.value(BLACK))
    numbers = alt.Chart(alt.InlineData(inside.to_dicts())).mark_text(fontSize=11)
    layers = [
        bars,
        numbers.encode(
            y=by_row(rows),
            x=alt.X("middle:Q"),
            text=alt.Text("share:Q", format=".0f"),
            color=ink,
            tooltip=tooltips(facts),
        ),
    ]
    if named:
        layers.append(row_labels({row: broken(row, LONGEST_LABEL) for row in rows}, rows))
    sizes = {row: counted(n) for row, n in shares.select("row", "n").iter_rows()}
    layers.append(row_labels(sizes, rows, right=True))
    title = alt.TitleParams(_lines(shares["benchmark"][0]), anchor="start", frame="group")
    height = row_height(rows, _WORD_ROW) * len(rows)
    return alt.layer(*layers, title=title, width=width, height=height)


_KINDS = {
    "scores": (experiments.scores, draw_scores),
    "sweep": (experiments.sweep, draw_sweep),
    "runtime": (experiments.runtime, draw_runtime),
    "words_per_round": (experiments.words, draw_words),
    "paired": (experiments.paired, draw_paired),
    "frontier": (experiments.frontier, draw_frontier),
    "gates": (gates, draw_gates),
}
"""How each kind of experiment is measured and drawn."""
