"""What all charts share: sizes, colours, dot plots, and how a chart becomes a file."""

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any, NamedTuple

import altair as alt
import polars as pl

from adafuse.metrics.registry import metric_named
from adafuse.metrics.score import MANY_CUT
from adafuse.metrics.scorer import PUBLISHED
from adafuse.report.main_table import MACRO_AVERAGE, STRICT_ORACLES, direction

Spec = dict[str, Any]
"""A chart as Vega-Lite."""

Panels = Sequence[Spec]

WIDTH = 691
"""Pixels of 1/96 inch, 7.2 inches: the text of a page, or two columns of a paper."""

FONT = 11
"""Pixels, 8.25 points; nothing is smaller."""

PAGE_PANEL = 400
"""Pixels of a panel's width on a page; its script fits it to the window."""

# M. Okabe and K. Ito, Color universal design, 2008, without the yellow, which is faint on white.
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, ORANGE, BLACK = "#56B4E9", "#E69F00", "#000000"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, SKY, ORANGE, BLACK)
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "triangle-right")
GREY, FAINT = "#595959", "#E3E3E3"

CROSS = (
    "M-.9,-.65L-.65,-.9L0,-.25L.65,-.9L.9,-.65L.25,0L.9,.65L.65,.9L0,.25L-.65,.9L-.9,.65L-.25,0Z"
)
"""A diagonal cross as an SVG path."""

LINE = 13
"""Pixels from one line of a label to the next."""

_CHARACTER = 6.1
"""Pixels that a character of `FONT` takes on average, a little generous."""

_OUTER = {"$schema", "config", "datasets"}
"""What stands at the top of a specification alone."""

_NARROWEST, _GAP, _PADDING, _MARGIN = 120, 14, 8, 12
_TITLE, _CAPTION, LONGEST_LABEL = 84, 112, 24
"""Characters in a line."""


LABEL = (
    pl.when(pl.col("selection") == "")
    .then(pl.col("run"))
    .otherwise(pl.format("{} ({})", "run", "selection"))
)
"""The name of a run, and what a reader must know of its selection."""

_CHOSEN = (PUBLISHED, "oracle")
_EARLIER = "Hollow, with rows decoded in an earlier attempt or for another run, at another cost"
_NAMED = 6
"""Runs of which limits cut many answers are named up to here."""


class Layer(NamedTuple):
    """The look of one kind of mark, and its place among the marks of a row."""

    colour: str
    shape: str
    height: int


@dataclass(frozen=True, slots=True)
class Dots:
    """A dot plot: a panel per benchmark, in which rows stand below each other.

    `marks` has the columns benchmark, row, scored (a name in `layers`), value, low and high (ends
    of an interval, or null) and hollow; any others are facts for a mark's tooltip. `titles` holds
    the lines above a benchmark's panel, `right` the texts at the ends of its rows. `zero` draws a
    line at 0. No axis covers less than `span`, so that small differences do not look large.
    """

    marks: pl.DataFrame
    layers: Mapping[str, Layer]
    unit: str
    titles: Mapping[str, Sequence[str]]
    right: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    zero: bool = False
    span: float = 0.0

    @property
    def rows(self) -> list[str]:
        """The rows of every panel."""
        return self.marks["row"].unique(maintain_order=True).to_list()

    def panels(self, width: int, columns: int = 1) -> Panels:
        """Draw the panels; only the first of each row of `columns` panels has labels."""
        groups = self.marks.partition_by("benchmark", maintain_order=True)
        return [
            _panel(self, marks, width, named=number % columns == 0)
            for number, marks in enumerate(groups)
        ]


def layered(layers: Iterable[alt.Chart], width: int, height: int, **more: Any) -> Spec:
    """Draw marks over each other, in one panel."""
    return alt.layer(*layers, width=width, height=height, **more).to_dict()


def composed(how: str, parts: Iterable[Spec], **layout: Any) -> Spec:
    """Place charts by "concat", "hconcat" or "vconcat", with all their data at the top.

    altair does this too, and copies every mark many times for each level.
    """
    parts = list(parts)
    data = {name: rows for part in parts for name, rows in part.get("datasets", {}).items()}
    inner = [{key: value for key, value in part.items() if key not in _OUTER} for part in parts]
    return {"$schema": alt.SCHEMA_URL, how: inner, "datasets": data, **layout}


def figure(chart: Spec, title: str, caption: str, legend: Iterable[str] = ()) -> Spec:
    """Return a chart of width `WIDTH` with the labels `legend` in its legend, as files hold it."""
    text: Spec = {"anchor": "start", "fontSize": FONT, "frame": "bounds"}
    below = text | {
        "text": textwrap.wrap(caption, _CAPTION), "orient": "bottom", "color": GREY,
        "fontWeight": "normal", "offset": 10, "lineHeight": LINE,
    }  # fmt: skip
    text |= {"fontSize": FONT + 2, "fontWeight": "bold"}
    above = text | {"text": textwrap.wrap(title, _TITLE), "offset": 8}
    columns = max(1, WIDTH // (text_width(legend) + 40))
    sizes = {"labelFontSize": FONT, "titleFontSize": FONT, "titleFontWeight": "normal"}
    axis = {"gridColor": FAINT, "domainColor": GREY, "tickColor": GREY, "titleColor": BLACK}
    titles = {"fontSize": FONT, "fontWeight": "normal", "lineHeight": LINE}
    place = {"orient": "top", "labelLimit": 0, "columns": columns, "columnPadding": 16}
    config = {
        "background": "white",
        "font": "Liberation Sans, Arial, sans-serif",
        "padding": {"left": _MARGIN, "right": _MARGIN, "top": 5, "bottom": 5},
        "axis": sizes | axis | {"labelLimit": 0},
        "legend": sizes | place | {"title": None},
        "title": titles,
        "view": {"stroke": None},
    }
    captioned = composed("vconcat", [chart], title=below)
    return composed("vconcat", [captioned], title=above, config=config)


def rendered(chart: Spec, kind: str) -> bytes:
    """Return a chart as the bytes of an "svg" or "png" file; the same chart, the same bytes."""
    import vl_convert

    if kind == "png":
        png: bytes = vl_convert.vegalite_to_png(chart, scale=200 / 96)
        return png
    svg: str = vl_convert.vegalite_to_svg(chart)
    return svg.encode()


def dot_plot(dots: Dots, title: str, caption: str) -> Spec:
    """Draw the panels side by side, as many as fit."""
    left = text_width(broken(row, LONGEST_LABEL) for row in dots.rows)
    right = text_width(text for texts in dots.right.values() for text in texts.values())
    columns, width = fitted(dots.marks["benchmark"].n_unique(), left, right)
    return figure(beside(dots.panels(width, columns), columns), title, caption, dots.layers)


def page_chart(panels: Panels) -> Spec:
    """Return panels as the Vega-Lite that assets/report.js takes; nothing without panels.

    The page chooses the columns and the width of the panels.
    """
    return composed("concat", panels, columns=2) if panels else {}


def beside(panels: Panels, columns: int) -> Spec:
    """Place panels side by side, so many to a row."""
    return composed("concat", panels, columns=columns, spacing=_GAP, align="each")


def fitted(count: int, left: float, right: float = 0) -> tuple[int, int]:
    """Return how many of `count` panels stand side by side, and how wide each is.

    `left` pixels are taken beside the first panel of a row, `right` pixels beside every one.
    """
    room = WIDTH - left - 2 * _MARGIN
    columns = balanced(count, max(1, int(room / (_NARROWEST + right + _GAP))))
    return columns, int((room - (columns - 1) * _GAP) / columns - right)


def balanced(count: int, most: int) -> int:
    """Return in how many columns, at most `most`, `count` panels fill their rows evenly."""
    return math.ceil(count / math.ceil(count / most))


def text_width(texts: Iterable[str]) -> int:
    """Return the pixels that the longest line of some labels needs; 0 without any."""
    longest = max((len(line) for text in texts for line in text.split("\n")), default=0)
    return math.ceil(_CHARACTER * longest) + _PADDING if longest else 0


def broken(name: str, width: int) -> str:
    """Break the lines of a label that are longer than `width` after `_`, `-`, `+` or a blank."""
    return "\n".join(_broken_line(line, width) for line in name.split("\n"))


def _broken_line(line: str, width: int) -> str:
    lines = [""]
    for part in re.findall(r"[^_+ -]*[_+ -]|[^_+ -]+", line):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def counted(n: int) -> str:
    """Return a number of rows as figures print it."""
    return f"n = {n:,}"


def score_axis(names: Iterable[str], difference: bool = False) -> str:
    """Return the title of an axis of scores by these metrics, or of their differences."""
    metrics = [metric_named(name) for name in set(names)]
    same, percent = direction(metrics), all(metric.binary for metric in metrics)
    title = "difference in points" if difference else "score" + " in percent" * percent
    return title + (same.note if same else "")


def by_row(rows: Sequence[str]) -> alt.Y:
    """Return the axis of rows, which draws a line for each and no names."""
    axis = alt.Axis(title=None, labels=False, ticks=False, domain=False, grid=True)
    return alt.Y("row:N", axis=axis, scale=alt.Scale(domain=list(rows)))


def row_texts(rows: Sequence[str], right: Mapping[str, str], *, named: bool) -> list[alt.Chart]:
    """Write the name of each row to the left of a panel, and a text of some to the right of it."""
    places: list[tuple[Mapping[str, str], Any, dict[str, Any]]] = [
        (
            {row: broken(row, LONGEST_LABEL) for row in rows if named},
            0,
            {"align": "right", "dx": -6},
        ),
        (right, "width", {"align": "left", "dx": 5}),
    ]
    middle = alt.expr(f"-datum.lines * {LINE / 2}")
    written = []
    for texts, x, place in places:
        values = [
            {"row": row, "text": text.split("\n"), "lines": text.count("\n")}
            for row, text in texts.items()
        ]
        labels = alt.Chart(alt.InlineData(values)).mark_text(
            baseline="middle", fontSize=FONT, lineHeight=LINE, dy=middle, **place
        )
        written += [labels.encode(y=by_row(rows), text="text:N", x=alt.value(x))] * bool(values)
    return written


def row_height(rows: Sequence[str], least: int) -> int:
    """Return the pixels of a row that has room for the longest label, and at least `least`."""
    lines = max(broken(row, LONGEST_LABEL).count("\n") + 1 for row in rows)
    return max(least, LINE * lines + 4)


def tooltips(values: pl.DataFrame) -> list[alt.Tooltip]:
    """Return what is shown of a mark that is pointed at: all columns of its values."""
    return [
        alt.Tooltip(f"{name}:Q", format=".4~f") if kind.is_float() else alt.Tooltip(f"{name}:N")
        for name, kind in values.schema.items()
    ]


def _panel(dots: Dots, marks: pl.DataFrame, width: int, *, named: bool) -> Spec:
    benchmark, rows, names = marks["benchmark"][0], dots.rows, list(dots.layers)
    colours, shapes, heights = (list(looks) for looks in zip(*dots.layers.values(), strict=True))
    height_of = dict(zip(names, heights, strict=True))
    values = marks.drop("benchmark").with_columns(
        height=pl.col("scored").replace_strict(height_of, return_dtype=pl.Int64)
    )
    axis = alt.Axis(title=dots.unit, tickCount=max(2, min(6, width // 40)))
    scale = alt.Scale(domain=_domain(marks, dots), nice=False, zero=False)
    offset = alt.Scale(domain=sorted(set(heights)), paddingOuter=0.6)
    base = inline(values).encode(
        y=by_row(rows),
        yOffset=alt.YOffset("height:O", scale=offset),
        color=alt.Color("scored:N", scale=alt.Scale(domain=names, range=colours)),
        tooltip=tooltips(values.drop("hollow", "height")),
    )
    points = base.encode(
        x=alt.X("value:Q", axis=axis, scale=scale),
        shape=alt.Shape("scored:N", scale=alt.Scale(domain=names, range=shapes)),
    )
    zero = alt.Chart(alt.InlineData([{"x": 0}])).mark_rule(color=GREY)
    layers: list[alt.Chart] = [zero.encode(x=alt.X("x:Q", scale=scale))] * dots.zero
    layers += [
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.4)
        .encode(x=alt.X("low:Q", scale=scale), x2="high:Q"),
        points.transform_filter("!datum.hollow").mark_point(filled=True, size=30, opacity=1),
        points.transform_filter("datum.hollow").mark_point(fill="white", size=26, opacity=1),
    ]
    layers += row_texts(rows, dots.right.get(benchmark, {}), named=named)
    title = heading(dots.titles[benchmark])
    height = len(rows) * row_height(rows, 10 * len(set(heights)) + 6)
    return layered(layers, width, height, title=title)


def _domain(marks: pl.DataFrame, dots: Dots) -> list[float]:
    ends = [end for name in ("value", "low", "high") for end in marks[name].drop_nulls()]
    low, high = min(ends + [0.0] * dots.zero), max(ends + [0.0] * dots.zero)
    lacking = max(0.0, dots.span - (high - low)) / 2
    pad = 0.04 * (high - low) or 1.0
    return [low - lacking - pad * (low != 0), high + lacking + pad * (high != 0)]


def notes(scores: pl.DataFrame) -> str:
    """Say of which scores a reader must know more: that of an oracle, or with answers cut."""
    rows = [row for row in scores.to_dicts() if row["benchmark"] != MACRO_AVERAGE]
    oracles = any((r.get("protocol"), r.get("selection")) == _CHOSEN for r in rows)
    cut, beyond = (
        [f"{_of(r)} ({r[name]:.0f} %)" for r in rows if (r.get(name) or 0.0) > MANY_CUT]
        for name in ("cut", "beyond")
    )
    failed = [f"{_of(r)} ({r['failed']})" for r in rows if r.get("failed")]
    earlier = [f"{_of(r)} ({counted(r['earlier'])})" for r in rows if r.get("earlier")]
    notes = {"Answers cut by limits": cut, "Answers that do not fit into max_new_tokens": beyond}
    notes |= {"Rows that failed, counted as wrong": failed, _EARLIER: earlier}
    named = [f"{note}: {_some([*dict.fromkeys(n)])}." for note, n in notes.items() if n]
    return "".join(f" {note}" for note in [STRICT_ORACLES] * oracles + named)


def _of(row: Mapping[str, Any]) -> str:
    return f"{row['run']} on {row['benchmark']}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)
    return f"{', '.join(names[:_NAMED])}{more}"


def inline(values: pl.DataFrame) -> alt.Chart:
    """Return a chart of values, which its file holds."""
    return alt.Chart(alt.InlineData(values.to_dicts()))


def heading(lines: Sequence[str]) -> alt.TitleParams:
    """Return the title of a panel."""
    return alt.TitleParams(list(lines), anchor="start", frame="group")


def look(series: Sequence[str], values: Sequence[Any], legend: alt.Legend | None) -> dict[str, Any]:
    """Return how series are told apart by these values, which take turns."""
    chosen = list(islice(cycle(values), len(series)))
    return {"scale": alt.Scale(domain=list(series), range=chosen), "legend": legend}


def series_encodings(
    field: str, series: Sequence[str], legend: alt.Legend | None
) -> tuple[Any, Any]:
    """Return the colour and the shape by which series are told apart."""
    colour = alt.Color(f"{field}:N", **look(series, COLOURS, legend))
    return colour, alt.Shape(f"{field}:N", **look(series, SHAPES, legend))


def shades(count: int) -> list[str]:
    """Return so many blues between a light and a dark one."""
    light, dark = (0xC6, 0xDB, 0xEF), (0x08, 0x30, 0x6B)
    parts = [number / max(1, count - 1) for number in range(count)]
    mixed = [
        [round(a + (b - a) * part) for a, b in zip(light, dark, strict=True)] for part in parts
    ]
    return ["#" + "".join(f"{value:02x}" for value in colour) for colour in mixed]
