"""The figures of the experiments, one function for each kind."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adafuse.metrics.registry import metric_named
from adafuse.models.spec import DeviceName
from adafuse.report.charts import (
    BLACK,
    BLUE,
    COLOURS,
    CROSS,
    LINE,
    LONGEST_LABEL,
    PAGE_PANEL,
    VERMILLION,
    Dots,
    Layer,
    Mark,
    Panel,
    Spec,
    balanced,
    beside,
    broken,
    by_row,
    counted,
    dot_plot,
    figure,
    fitted,
    page_chart,
    page_dots,
    row_labels,
    text_width,
    tooltips,
)
from adafuse.report.experiments import (
    MACRO_AVERAGE,
    DifferencePoint,
    Experiment,
    RunName,
    RuntimePoint,
    ScorePoint,
    SweepPoint,
    WordsPoint,
)
from adafuse.report.main_table import ScoreTable, column_metric
from adafuse.report.measures import Cost, WordShare
from adafuse.report.points import difference_points, score_points, sweep_points, words_points
from adafuse.report.runtime import runtime_points

if TYPE_CHECKING:
    import altair as alt

PROTOCOL_COLOURS = {"strict": BLUE, "published": VERMILLION}

_PAPER = "the paper's Table 1 (compare with published scoring only)"
_SCORES = {
    "": "95 % intervals (Wilson; bootstrap for BLEU).",
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
    " paired proportions; BLEU: paired bootstrap). Filled: p below 0.05 after Holm's correction for"
    " all pairs of the benchmark (McNemar's exact test; BLEU: paired bootstrap) and an interval"
    " without 0. Hollow: no significant difference."
)
_SWEEP = "Bands and bars: 95 % intervals (Wilson; bootstrap for BLEU)."
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

_MEDIAN = Layer("median, bar: quartiles", BLUE, "circle", 0)
_MEAN = Layer("mean, bar: 95 % interval (bootstrap)", VERMILLION, "diamond", 1)

_SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "triangle-right")
_DASHES = ([1, 0], [5, 3], [7, 3, 2, 3], [2, 2])
_SWEEP_COLUMNS, _SWEEP_HEIGHT, _LONGEST_SERIES = 3, 130, 105
_FEW = 12
"""Integer values up to this many get a tick each."""

_WORD_ROW = 24
_FITS = 26
"""Pixels in which a number of two digits can be read."""


def measured(experiment: Experiment) -> "tuple[Sequence[RunName], alt.VConcatChart]":
    """Measure and draw an experiment.

    Raises:
        UserError: a result file is missing, or the runs do not fit the kind of experiment.
    """
    title = experiment.section.title
    match experiment.section.kind:
        case "scores":
            scores = score_points(experiment)
            return scores, draw_scores(title, scores)
        case "sweep":
            sweep = sweep_points(experiment)
            return sweep, draw_sweep(title, sweep)
        case "runtime":
            times = runtime_points(experiment)
            return times, draw_runtime(title, times)
        case "words_per_round":
            words = words_points(experiment)
            return words, draw_words(title, words)
        case "paired":
            differences = difference_points(experiment)
            return [*score_points(experiment), *differences], draw_paired(title, differences)


def draw_scores(title: str, points: Sequence[ScorePoint]) -> "alt.VConcatChart":
    """Draw every score with its interval; oracles hollow, the paper's values as crosses."""
    layers = protocol_layers([point.protocol for point in points])
    if paper := next((point for point in points if point.paper is not None), None):
        layers[_PAPER] = Layer(_PAPER, BLACK, CROSS, layers[paper.protocol].height)

    def marks(point: ScorePoint) -> list[Mark]:
        hollow = point.selection == "oracle"
        ends = (point.low, point.high)
        own = Mark(point.label, layers[point.protocol], point.value, *ends, hollow)
        if point.paper is None:
            return [own]
        return [own, Mark(point.label, layers[_PAPER], point.paper, None, None)]

    said = {"", *(point.selection for point in points)}
    said |= {"paper"} if paper else set()
    said |= {"average"} if any(point.benchmark == MACRO_AVERAGE for point in points) else set()
    caption = " ".join(text for name, text in _SCORES.items() if name in said)
    panels = _panels(points, panel_title, marks)
    rows = tuple(dict.fromkeys(point.label for point in points))
    dots = Dots("score in percent", rows, tuple(layers.values()), panels, span=10.0)
    return _dots_figure(dots, title, caption)


def draw_paired(title: str, points: Sequence[DifferencePoint]) -> "alt.VConcatChart":
    """Draw every difference with its interval; significant ones are filled."""
    layers = protocol_layers([point.protocol for point in points])

    def pair(point: DifferencePoint) -> str:
        return f"{point.label}\n\N{MINUS SIGN} {point.against_label}"

    def marks(point: DifferencePoint) -> list[Mark]:
        ends = (point.difference_low, point.difference_high)
        hollow = not point.significant
        return [Mark(pair(point), layers[point.protocol], point.difference, *ends, hollow)]

    rows = tuple(dict.fromkeys(map(pair, points)))
    panels = _panels(points, panel_title, marks)
    dots = Dots("difference in points", rows, tuple(layers.values()), panels, zero=True)
    return _dots_figure(dots, title, _PAIRED)


def draw_runtime(title: str, points: Sequence[RuntimePoint]) -> "alt.VConcatChart":
    """Draw median with quartiles and mean with interval of every run."""

    def marks(point: RuntimePoint) -> list[Mark]:
        quartiles = (point.seconds_quartile_1, point.seconds_quartile_3)
        ends = (point.seconds_mean_low_bootstrap95, point.seconds_mean_high_bootstrap95)
        return [
            Mark(point.label, _MEDIAN, point.seconds_median, *quartiles),
            Mark(point.label, _MEAN, point.seconds_mean, *ends),
        ]

    panels = _panels(points, _timed_title, marks, _factor)
    rows = tuple(dict.fromkeys(point.label for point in points))
    dots = Dots("seconds per example", rows, (_MEDIAN, _MEAN), panels, zero=True)
    return _dots_figure(dots, title, _conditions(points))


def page_scores(tables: Mapping[str, ScoreTable]) -> Spec:
    """Draw each run's score on each benchmark with its interval, for the report's page."""
    layers = protocol_layers(list(tables))
    panels: dict[str, list[Mark]] = {}
    for protocol, table in tables.items():
        for column, name in enumerate(table.benchmarks):
            title = f"{name} ({metric_named(column_metric(table, column)).label})"
            panels.setdefault(title, []).extend(
                Mark(
                    row.run, layers[protocol], cell.main.value, cell.main.low, cell.main.high,
                    facts={"models": "+".join(row.models), "n": cell.n},
                )
                for row in table.rows
                if (cell := row.cells[column]) is not None
            )  # fmt: skip
    return _page_dots("percent, with 95 % intervals", tuple(layers.values()), panels)


def page_seconds(costs: Sequence[Cost]) -> Spec:
    """Draw the seconds per example of those that decoded some, for the report's page."""
    layer = Layer("mean", BLUE, "circle", 0)
    panels: dict[str, list[Mark]] = {}
    for cost in costs:
        if (mean := cost.seconds) is not None:
            facts = {"n": cost.n - cost.errors}
            mark = Mark(cost.run, layer, mean.value, mean.low, mean.high, facts=facts)
            panels.setdefault(cost.benchmark, []).append(mark)
    return _page_dots("seconds per example, with 95 % intervals", (layer,), panels)


def _page_dots(unit: str, layers: tuple[Layer, ...], panels: Mapping[str, list[Mark]]) -> Spec:
    rows = tuple(dict.fromkeys(mark.row for marks in panels.values() for mark in marks))
    found = tuple(Panel((name,), tuple(marks)) for name, marks in panels.items() if marks)
    return page_dots(Dots(unit, rows, layers, found))


def protocol_layers(protocols: Sequence[str]) -> dict[str, Layer]:
    """Return a layer for each protocol, in the order of their first occurrence."""
    return {
        name: Layer(f"{name} scoring", PROTOCOL_COLOURS[name], _SHAPES[number], number)
        for number, name in enumerate(dict.fromkeys(protocols))
    }


def panel_title(points: Sequence[ScorePoint | DifferencePoint]) -> tuple[str, ...]:
    """Return benchmark, metric and number of rows of a panel's points, which share all but n."""
    name, metric = points[0].benchmark, metric_named(points[0].metric).label
    sizes = {point.protocol: point.n for point in points if point.n is not None}
    if not sizes:
        return (name,)
    if len(set(sizes.values())) == 1:
        return (*_lines(name), f"{metric}, {counted(next(iter(sizes.values())))}")
    each = [f"{counted(n)} ({protocol})" for protocol, n in sizes.items()]
    return (*_lines(f"{name}, {metric}"), *each)


def _lines(name: str) -> list[str]:
    return broken(name, 20).split("\n")


def _panels(
    points: Sequence[Any],
    title: Callable[[Any], tuple[str, ...]],
    marks: Callable[[Any], list[Mark]],
    right: Callable[[Any], str] = lambda point: "",
) -> tuple[Panel, ...]:
    """Return a panel for each benchmark; `right` says what stands beside a point's row."""
    groups: dict[str, list[Any]] = {}
    for point in points:
        groups.setdefault(point.benchmark, []).append(point)
    return tuple(
        Panel(
            title(group),
            tuple(mark for point in group for mark in marks(point)),
            {point.label: text for point in group if (text := right(point))},
        )
        for group in groups.values()
    )


def _dots_figure(dots: Dots, title: str, caption: str) -> "alt.VConcatChart":
    return figure(dot_plot(dots), title, caption, [layer.label for layer in dots.layers])


def _factor(point: RuntimePoint) -> str:
    factor = point.mean_relative_to_members
    return "" if factor is None else f"{factor:.2f}\N{MULTIPLICATION SIGN}"


def _timed_title(points: Sequence[RuntimePoint]) -> tuple[str, ...]:
    fewest, most = min(point.n for point in points), max(point.n for point in points)
    size = counted(most) if fewest == most else f"n = {fewest:,} to {most:,}"
    return (*_lines(points[0].benchmark), size)


def _conditions(points: Sequence[RuntimePoint]) -> str:
    first = points[0]
    device = DeviceName.parse(first.devices.split()[0]).kind
    parts = {
        f"Batch size {first.batch_size}, {first.dtype}, device {device}.": True,
        _RELATIVE: any(map(_factor, points)),
        _BATCHED: first.batch_size > 1,
        _UNTIMED: not all(point.timed for point in points),
    }
    return " ".join(text for text, applies in parts.items() if applies)


def draw_sweep(title: str, points: Sequence[SweepPoint]) -> "alt.VConcatChart":
    """Draw every series with its intervals; a legend names them if there are several."""
    import altair as alt

    cells: dict[str, dict[str, list[SweepPoint]]] = {}
    for point in points:
        cells.setdefault(point.protocol, {}).setdefault(point.benchmark, []).append(point)
    series = [broken(name, _LONGEST_SERIES) for name in dict.fromkeys(p.series for p in points)]
    columns = balanced(max(map(len, cells.values())), _SWEEP_COLUMNS)
    width = int(fitted(columns, 0)[1]) - 50
    # Each protocol begins a row of its own.
    rows = [
        beside([_sweep_panel(chosen, series, width) for chosen in row.values()], columns)
        for row in cells.values()
    ]
    named = series if len(series) > 1 else []
    return figure(alt.vconcat(*rows), title, _SWEEP, named)


def _sweep_panel(
    points: Sequence[SweepPoint], series: Sequence[str], width: int
) -> "alt.LayerChart | alt.FacetChart":
    import altair as alt

    first, labels = points[0], [broken(point.series, _LONGEST_SERIES) for point in points]
    # Later series are drawn over earlier ones, which are larger: both are seen where they agree.
    values = [
        {"series": label, "x": p.x, "value": p.value, "low": p.low, "high": p.high, "n": p.n,
         "lonely": labels.count(label) == 1,
         "size": 30 + 35 * min(3, len(series) - 1 - series.index(label))}
        for p, label in zip(points, labels, strict=True)
    ]  # fmt: skip
    split = "split(datum.label, '\\n')"
    legend = (
        alt.Legend(symbolOpacity=1, labelExpr=split, symbolDash=[1, 0]) if len(series) > 1 else None
    )

    def look(values: Sequence[Any]) -> dict[str, Any]:
        chosen = [values[number % len(values)] for number in range(len(series))]
        return {"scale": alt.Scale(domain=list(series), range=chosen), "legend": legend}

    base = alt.Chart(alt.InlineData(values)).encode(
        x=alt.X("x:Q", axis=_value_axis(points), scale=alt.Scale(zero=False, padding=8)),
        color=alt.Color("series:N", **look(COLOURS)),
        tooltip=tooltips(
            {name: v for name, v in values[0].items() if name not in ("lonely", "size")}
        ),
    )
    low, high = min(point.low for point in points), max(point.high for point in points)
    room = 0.04 * (high - low) or 1.0
    scale = alt.Scale(domain=[low - room, high + room], nice=False, zero=False)
    y = alt.Y("value:Q", scale=scale, axis=alt.Axis(tickCount=5))
    ends = {"y": alt.Y("low:Q", title="score in percent"), "y2": "high:Q"}
    lines = base.encode(
        y=y, strokeDash=alt.StrokeDash("series:N", **{**look(_DASHES), "legend": None})
    )
    layers = (
        base.transform_filter("!datum.lonely").mark_area(opacity=0.15).encode(**ends),
        base.transform_filter("datum.lonely").mark_rule(strokeWidth=1.4).encode(**ends),
        lines.mark_line(strokeWidth=1.6),
        base.mark_point(filled=True, opacity=1).encode(
            y=y,
            shape=alt.Shape("series:N", **look(_SHAPES)),
            size=alt.Size("size:Q", scale=None),
        ),
    )
    head = broken(f"{first.benchmark}, {metric_named(first.metric).label}", 34).split("\n")
    below = f"{first.protocol} scoring, {counted(first.n)}"
    title = alt.TitleParams([*head, below], anchor="start", frame="group")
    return alt.layer(*layers, title=title, width=width, height=_SWEEP_HEIGHT)


def _value_axis(points: Sequence[SweepPoint]) -> "alt.Axis":
    """Name the option, or whose is which; few whole numbers get a tick each."""
    import altair as alt

    owners = dict.fromkeys((point.option, point.method) for point in points)
    options = list(dict.fromkeys(option for option, _ in owners))
    title = [f"{option} ({method})" for option, method in owners] if len(options) > 1 else options
    distinct = sorted({point.x for point in points})
    whole = all(isinstance(value, int) for value in distinct)
    ticks: dict[str, Any] = {"tickCount": 6}
    if whole:
        ticks = {"values": distinct} if len(distinct) <= _FEW else {"tickMinStep": 1}
    return alt.Axis(title=title, labelOverlap=True, **ticks)


def draw_words(title: str, points: Sequence[WordsPoint]) -> "alt.VConcatChart":
    """Draw the shares of every run as parts of one bar, with n at its end."""
    rows = tuple(dict.fromkeys(point.label for point in points))
    groups: dict[str, list[WordsPoint]] = {}
    for point in points:
        groups.setdefault(point.benchmark, []).append(point)
    left = text_width(broken(row, LONGEST_LABEL) for row in rows)
    columns, width = fitted(len(groups), left, text_width(counted(p.n) for p in points))
    most = max(point.words for point in points)
    panels = [
        _words_panel([(p.label, p) for p in group], rows, width, most, named=number % columns == 0)
        for number, group in enumerate(groups.values())
    ]
    return figure(beside(panels, columns), title, _WORDS, [f"{most} words"])


def page_words(shares: Sequence[WordShare]) -> Spec:
    """Draw the shares of rounds by how many words they committed, for the report's page."""
    groups: dict[str, list[tuple[str, WordShare]]] = {}
    for share in shares:
        groups.setdefault(share.benchmark, []).append((share.run, share))
    most = max((share.words for share in shares), default=0)
    return page_chart(
        [
            _words_panel(group, list(dict(group)), PAGE_PANEL, most, named=True)
            for group in groups.values()
        ]
    )


def _words_panel(
    shares: Sequence[tuple[str, WordShare | WordsPoint]],
    rows: Sequence[str],
    width: int,
    most: int,
    *,
    named: bool,
) -> "alt.LayerChart | alt.FacetChart":
    import altair as alt

    values = [
        {"row": label, "words": _words(p.words), "share": p.share, "low": p.low, "high": p.high,
         "rounds": p.rounds, "n": p.n, "number": p.words, "fits": p.share * width / 100 >= _FITS}
        for label, p in shares
    ]  # fmt: skip
    facts = {name: value for name, value in values[0].items() if name not in ("number", "fits")}
    share = alt.X(
        "share:Q", stack="zero", scale=alt.Scale(domain=[0, 100]),
        axis=alt.Axis(title="share of rounds in percent", tickCount=max(2, min(5, width // 40))),
    )  # fmt: skip
    # Light to dark: lightness tells the shades apart without colour.
    names, shades = [_words(number) for number in range(1, most + 1)], _shades(most)
    colours = alt.Scale(domain=names, range=shades)
    base = alt.Chart(alt.InlineData(values)).encode(y=by_row(rows), order=alt.Order("number:O"))
    bars = base.mark_bar(height=_WORD_ROW - 6).encode(
        x=share, color=alt.Color("words:N", scale=colours), tooltip=tooltips(facts)
    )
    ink = alt.condition(f"datum.number > {most / 2}", alt.value("white"), alt.value(BLACK))
    inside = (
        alt.Chart(alt.InlineData(_middles(values)))
        .mark_text(fontSize=11)
        .encode(
            y=by_row(rows), x=alt.X("middle:Q"), text=alt.Text("share:Q", format=".0f"), color=ink
        )
    )
    labels = {row: broken(row, LONGEST_LABEL) for row in rows}
    height = max(_WORD_ROW, LINE * max(text.count("\n") + 1 for text in labels.values()) + 4)
    layers = [bars, inside, *([row_labels(labels, rows)] * named)]
    layers.append(row_labels({label: counted(p.n) for label, p in shares}, rows, right=True))
    title = alt.TitleParams(_lines(shares[0][1].benchmark), anchor="start", frame="group")
    return alt.layer(*layers, title=title, width=width, height=height * len(rows))


def _middles(values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return where the number of each part that has room for one stands."""
    ends: dict[str, float] = {}
    found = []
    for value in sorted(values, key=lambda each: each["number"]):
        start = ends.get(value["row"], 0.0)
        ends[value["row"]] = start + value["share"]
        if value["fits"]:
            found.append({**value, "middle": start + value["share"] / 2})
    return found


def _words(count: int) -> str:
    return f"{count} word{'s' * (count > 1)}"


def _shades(count: int) -> list[str]:
    """Return so many blues between a light and a dark one."""
    light, dark = (0xC6, 0xDB, 0xEF), (0x08, 0x30, 0x6B)
    parts = [number / max(1, count - 1) for number in range(count)]
    mixed = [
        [round(a + (b - a) * part) for a, b in zip(light, dark, strict=True)] for part in parts
    ]
    return ["#" + "".join(f"{value:02x}" for value in each) for each in mixed]
