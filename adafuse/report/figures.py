"""The figures of the experiments and the charts of the report's page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import altair as alt
import polars as pl

from adafuse.metrics.intervals import INTERVALS
from adafuse.metrics.measures import Cost, WordShare
from adafuse.metrics.registry import metric_named
from adafuse.models.spec import device_kind
from adafuse.report import charts, experiments
from adafuse.report.curves import draw_frontier, draw_gates, draw_sweep
from adafuse.report.experiments import Experiment
from adafuse.report.main_table import MACRO_AVERAGE, ScoreTable

PROTOCOL_COLOURS = {"strict": charts.BLUE, "published": charts.VERMILLION}

_PAPER = "the paper's numbers (compare with published scoring only)"
_SCORES = {
    "": f"95 % intervals ({INTERVALS}).",
    "average": "The macro average is the mean of a run's scores.",
    "oracle": (
        "Hollow (oracle): chosen with the answers of the very rows that are scored, by strict"
        " scores; an upper bound for choosing, not a method."
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
_TIMES = {
    _MEDIAN: charts.Layer(charts.BLUE, "circle", 0),
    _MEAN: charts.Layer(charts.VERMILLION, "diamond", 1),
}

_WORD_ROW = 24
_FITS = 26
"""Pixels in which a number of two digits can be read."""


_SCORED_BY = pl.format("{} scoring", "protocol")


def measured(experiment: Experiment) -> tuple[pl.DataFrame, charts.Spec]:
    """Measure and draw an experiment."""
    measure, draw = _KINDS[experiment.section.kind]
    table = measure(experiment)
    return table, draw(experiment.section.title, table)


def draw_scores(title: str, scores: pl.DataFrame) -> charts.Spec:
    """Draw every score with its interval; oracles hollow, the paper's values as crosses."""
    scores = scores.with_columns(row=charts.LABEL)
    layers = protocol_layers(scores["protocol"])
    oracle = pl.col("selection") == "oracle"
    marks = _marks(scores, _SCORED_BY, "value", "low", "high", hollow=oracle)
    parts = {"", *scores["selection"]}
    parts |= {"average"} if MACRO_AVERAGE in scores["benchmark"] else set()
    paper = scores.drop_nulls("paper")
    if len(paper):
        parts |= {"paper"}
        layers[_PAPER] = charts.Layer(
            charts.BLACK, charts.CROSS, layers[f"{paper['protocol'][0]} scoring"].height
        )
        crosses = _marks(paper, pl.lit(_PAPER), "paper", None, None)
        marks = pl.concat([marks, crosses], how="vertical_relaxed")
    caption = " ".join(text for part, text in _SCORES.items() if part in parts) + charts.notes(
        scores
    )
    axis = charts.score_axis(scores.filter(pl.col("benchmark") != MACRO_AVERAGE)["metric"])
    dots = charts.Dots(marks, layers, axis, _titles(scores), span=10.0)
    return charts.dot_plot(dots, title, caption)


def draw_paired(title: str, table: pl.DataFrame) -> charts.Spec:
    """Draw every difference with its interval; significant ones are filled."""
    labels = dict(table.select("run", label=charts.LABEL).iter_rows())
    against = pl.col("against").replace(labels)
    row = pl.format("{}\n\N{MINUS SIGN} {}", charts.LABEL, against)
    tests = table.drop_nulls("against").with_columns(row=row)
    names = ("difference", "difference_low", "difference_high")
    marks = _marks(tests, _SCORED_BY, *names, hollow=~pl.col("significant"))
    layers = protocol_layers(tests["protocol"])
    axis = charts.score_axis(tests["metric"], difference=True)
    dots = charts.Dots(marks, layers, axis, _titles(tests), zero=True)
    return charts.dot_plot(dots, title, _PAIRED + charts.notes(table))


def draw_runtime(title: str, times: pl.DataFrame) -> charts.Spec:
    """Draw median with quartiles and mean with interval of every run."""
    times = times.with_columns(row=charts.LABEL)
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
    dots = charts.Dots(marks, _TIMES, "seconds per example", titles, factors, zero=True)
    return charts.dot_plot(dots, title, _conditions(times))


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


_SERVERS = "number type of the servers"


def _conditions(times: pl.DataFrame) -> str:
    first = times.row(0, named=True)
    device = device_kind(first["devices"].split()[0])
    parts = {
        f"Batch size {first['batch_size']}, {first['dtype'] or _SERVERS}, device {device}.": True,
        _RELATIVE: times["mean_relative_to_members"].count() > 0,
        _BATCHED: first["batch_size"] > 1,
        _UNTIMED: not times["timed"].all(),
    }
    return " ".join(text for text, applies in parts.items() if applies)


def page_scores(tables: Mapping[str, ScoreTable]) -> charts.Spec:
    """Draw each run's score on each benchmark with its interval, for the report's page."""
    marks = [
        {
            "benchmark": f"{column.name} ({column.metric.label}{column.metric.note})",
            "row": row.run,
            "scored": f"{protocol} scoring",
            **asdict(cell.score.main),
            "models": "+".join(row.models),
            "n": cell.score.n,
            "cut": cell.score.cut_share,
            "beyond": cell.score.beyond_share,
            "failed": cell.failed,
        }
        for protocol, table in tables.items()
        for number, column in enumerate(table.columns)
        for row in table.rows
        if (cell := row.cells[number]).score is not None
    ]
    axis = charts.score_axis(c.metric.name for table in tables.values() for c in table.columns)
    return _page_dots(marks, protocol_layers(tables), f"{axis}, with 95 % intervals")


def page_seconds(costs: Sequence[Cost]) -> charts.Spec:
    """Draw the seconds per example of those that decoded some, for the report's page."""
    marks = [
        {"benchmark": cost.benchmark, "row": cost.run, "scored": "mean"}
        | asdict(cost.seconds)
        | {"n": cost.n - cost.errors}
        for cost in costs
        if cost.seconds is not None
    ]
    layers = {"mean": charts.Layer(charts.BLUE, "circle", 0)}
    return _page_dots(marks, layers, "seconds per example, with 95 % intervals")


def _page_dots(
    marks: Sequence[Mapping[str, Any]], layers: Mapping[str, charts.Layer], unit: str
) -> charts.Spec:
    if not marks:
        return {}
    table = pl.DataFrame(marks, infer_schema_length=None).with_columns(hollow=False)
    dots = charts.Dots(table, layers, unit, {name: [name] for name in table["benchmark"].unique()})
    return charts.page_chart(dots.panels(charts.PAGE_PANEL))


def protocol_layers(protocols: Iterable[str]) -> dict[str, charts.Layer]:
    """Return a layer for each protocol, in the order of their first occurrence."""
    return {
        f"{name} scoring": charts.Layer(PROTOCOL_COLOURS[name], charts.SHAPES[number], number)
        for number, name in enumerate(dict.fromkeys(protocols))
    }


def _titles(table: pl.DataFrame) -> dict[str, list[str]]:
    return {group["benchmark"][0]: _title(group) for group in table.partition_by("benchmark")}


def _title(group: pl.DataFrame) -> list[str]:
    """Return benchmark, metric and number of rows."""
    name, metric = group["benchmark"][0], metric_named(group["metric"][0])
    sizes = dict(group.drop_nulls("n").select("protocol", "n").iter_rows())
    if not sizes:
        return [name]
    note = [metric.note.removeprefix(", ")] * (not metric.higher_is_better)
    if len(set(sizes.values())) == 1:
        n = charts.counted(next(iter(sizes.values())))
        return [*_lines(name), f"{metric.label}, {n}", *note]
    counts = [f"{charts.counted(n)} ({protocol})" for protocol, n in sizes.items()]
    return [*_lines(f"{name}, {metric.label}"), *note, *counts]


def _lines(name: str) -> list[str]:
    return charts.broken(name, 20).split("\n")


def draw_words(title: str, shares: pl.DataFrame) -> charts.Spec:
    """Draw the shares of every run as parts of one bar, with n at its end."""
    shares = shares.with_columns(row=charts.LABEL)
    rows = shares["row"].unique(maintain_order=True).to_list()
    groups = shares.partition_by("benchmark", maintain_order=True)
    left = charts.text_width(charts.broken(row, charts.LONGEST_LABEL) for row in rows)
    columns, width = charts.fitted(
        len(groups), left, charts.text_width(map(charts.counted, shares["n"]))
    )
    most = max(shares["words"])
    panels = [
        _words_panel(group, rows, width, most, named=number % columns == 0)
        for number, group in enumerate(groups)
    ]
    return charts.figure(charts.beside(panels, columns), title, _WORDS, [f"{most} words"])


def page_words(shares: Sequence[WordShare]) -> charts.Spec:
    """Draw the shares of rounds by how many words they committed, for the report's page."""
    if not shares:
        return {}
    table = pl.DataFrame(shares).rename({"run": "row"})
    panels = []
    for group in table.partition_by("benchmark", maintain_order=True):
        rows = group["row"].unique(maintain_order=True).to_list()
        panels.append(_words_panel(group, rows, charts.PAGE_PANEL, max(table["words"]), named=True))
    return charts.page_chart(panels)


def _words_panel(
    shares: pl.DataFrame, rows: Sequence[str], width: int, most: int, *, named: bool
) -> charts.Spec:
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
    colours = alt.Scale(domain=list(names.values()), range=charts.shades(most))
    base = charts.inline(values).encode(y=charts.by_row(rows), order=alt.Order("number:O"))
    bars = base.mark_bar(height=_WORD_ROW - 6).encode(
        x=share, color=alt.Color("words:N", scale=colours), tooltip=charts.tooltips(facts)
    )
    ink = alt.condition(f"datum.number > {most / 2}", alt.value("white"), alt.value(charts.BLACK))
    numbers = charts.inline(inside).mark_text(fontSize=11)
    layers = [
        bars,
        numbers.encode(
            y=charts.by_row(rows),
            x=alt.X("middle:Q"),
            text=alt.Text("share:Q", format=".0f"),
            color=ink,
            tooltip=charts.tooltips(facts),
        ),
    ]
    sizes = {row: charts.counted(n) for row, n in shares.select("row", "n").iter_rows()}
    layers += charts.row_texts(rows, sizes, named=named)
    title = charts.heading(_lines(shares["benchmark"][0]))
    height = charts.row_height(rows, _WORD_ROW) * len(rows)
    return charts.layered(layers, width, height, title=title)


_KINDS = {
    "scores": (experiments.scores, draw_scores),
    "sweep": (experiments.sweep, draw_sweep),
    "runtime": (experiments.runtime, draw_runtime),
    "words_per_round": (experiments.words, draw_words),
    "paired": (experiments.paired, draw_paired),
    "frontier": (experiments.frontier, draw_frontier),
    "gates": (experiments.gates, draw_gates),
}
"""How each kind of experiment is measured and drawn."""
