"""What all charts share: sizes, colours, dot plots, and how a chart becomes a file."""

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    import altair as alt

    Panels = Sequence[alt.LayerChart | alt.FacetChart]

Chart = Union["alt.LayerChart", "alt.VConcatChart", "alt.ConcatChart"]

Spec = dict[str, Any]

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
GREY, FAINT = "#595959", "#E3E3E3"

CROSS = (
    "M-.9,-.65L-.65,-.9L0,-.25L.65,-.9L.9,-.65L.25,0L.9,.65L.65,.9L0,.25L-.65,.9L-.9,.65L-.25,0Z"
)
"""A diagonal cross as an SVG path."""

_CHARACTER = 6.1
"""Pixels that a character of `FONT` takes on average, a little generous."""

LINE = 13
"""Pixels from one line of a label to the next."""

_NARROWEST, _GAP, _PADDING, _MARGIN = 120, 14, 8, 12
_TITLE, _CAPTION, LONGEST_LABEL = 84, 112, 24
"""Characters in a line."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One kind of mark: what the legend says, its look, and at which height of a row it stands."""

    label: str
    colour: str
    shape: str
    height: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A value in a row with the ends of its interval; `hollow` ones have no filling.

    `facts` are what a page shows of it besides, when it is pointed at.
    """

    row: str
    layer: Layer
    value: float
    low: float | None
    high: float | None
    hollow: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Panel:
    """A title of some lines, marks, and what stands at the right end of a row."""

    title: tuple[str, ...]
    marks: tuple[Mark, ...]
    right: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dots:
    """A dot plot: a panel per benchmark, in which `rows` stand below each other.

    `zero` asks for a line at 0. No axis covers less than `span`, so that differences that mean
    nothing do not look large.
    """

    unit: str
    rows: tuple[str, ...]
    layers: tuple[Layer, ...]
    panels: tuple[Panel, ...]
    zero: bool = False
    span: float = 0.0


def figure(
    chart: Chart, title: str, caption: str, legend: Sequence[str] = ()
) -> "alt.VConcatChart":
    """Return a chart as files hold it.

    Args:
        chart: panels of `WIDTH` together.
        title: stands above.
        caption: stands below.
        legend: the labels of the chart's legend.
    """
    import altair as alt

    text: Any = {"anchor": "start", "fontSize": FONT, "frame": "bounds"}
    below = alt.TitleParams(
        textwrap.wrap(caption, _CAPTION), orient="bottom", color=GREY, fontWeight="normal",
        offset=10, lineHeight=LINE, **text,
    )  # fmt: skip
    text |= {"fontSize": FONT + 2, "fontWeight": "bold"}
    above = alt.TitleParams(textwrap.wrap(title, _TITLE), offset=8, **text)
    columns = max(1, WIDTH // (text_width(legend) + 40))
    named = alt.vconcat(alt.vconcat(chart, title=below)).properties(title=above)
    sizes = {"labelFontSize": FONT, "titleFontSize": FONT, "titleFontWeight": "normal"}
    styled: alt.VConcatChart = (
        named.configure(
            background="white",
            font="Liberation Sans, Arial, sans-serif",
            padding={"left": _MARGIN, "right": _MARGIN, "top": 5, "bottom": 5},
        )
        .configure_axis(
            **sizes,
            gridColor=FAINT,
            domainColor=GREY,
            tickColor=GREY,
            labelLimit=0,
            titleColor=BLACK,
        )
        .configure_legend(
            **sizes, orient="top", labelLimit=0, columns=columns, columnPadding=16, title=None
        )
        .configure_title(fontSize=FONT, fontWeight="normal", lineHeight=LINE)
        .configure_view(stroke=None)
    )
    return styled


def stored(chart: Chart, kind: str) -> bytes:
    """Return a chart as the bytes of an "svg" or "png" file; the same chart, the same bytes."""
    import vl_convert

    spec = chart.to_dict()
    if kind == "png":
        png: bytes = vl_convert.vegalite_to_png(spec, scale=200 / 96)
        return png
    svg: str = vl_convert.vegalite_to_svg(spec)
    return svg.encode()


def dot_plot(dots: Dots) -> "alt.ConcatChart":
    """Draw the panels side by side, as many as fit; only the first of a row has labels."""
    left = text_width(broken(row, LONGEST_LABEL) for row in dots.rows)
    right = text_width(text for panel in dots.panels for text in panel.right.values())
    columns, width = fitted(len(dots.panels), left, right)
    return beside(
        [
            _panel(panel, dots, width, named=number % columns == 0)
            for number, panel in enumerate(dots.panels)
        ],
        columns,
    )


def page_dots(dots: Dots) -> Spec:
    """Draw a dot plot for a page, which chooses the width of the panels and their columns."""
    return page_chart([_panel(panel, dots, PAGE_PANEL, named=True) for panel in dots.panels])


def page_chart(panels: "Panels") -> Spec:
    """Return panels as the Vega-Lite that assets/report.js takes; nothing without panels."""
    import altair as alt

    if not panels:
        return {}
    return alt.concat(*panels, columns=2).to_dict()


def beside(panels: "Panels", columns: int) -> "alt.ConcatChart":
    """Place panels side by side, so many to a row."""
    import altair as alt

    return alt.concat(*panels, columns=columns, spacing=_GAP, align="each")


def fitted(count: int, left: float, right: float = 0) -> tuple[int, int]:
    """Return how many of `count` panels stand side by side, and how wide each is.

    Args:
        count: how many there are.
        left: pixels beside the first of a row.
        right: pixels beside every one.
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
    return "\n".join(each.rstrip() for each in lines)


def counted(n: int) -> str:
    """Return a number of rows as figures print it."""
    return f"n = {n:,}"


def by_row(rows: Sequence[str]) -> "alt.Y":
    """Return the axis of rows, which draws a line for each and no names."""
    import altair as alt

    axis = alt.Axis(title=None, labels=False, ticks=False, domain=False, grid=True)
    return alt.Y("row:N", axis=axis, scale=alt.Scale(domain=list(rows)))


def row_labels(
    texts: Mapping[str, str], rows: Sequence[str], *, right: bool = False
) -> "alt.Chart":
    """Write a text beside each row, to the left of the panel or to the right of it."""
    import altair as alt

    values = [
        {"row": row, "text": text.split("\n"), "lines": text.count("\n")}
        for row, text in texts.items()
    ]
    middle = alt.expr(f"-datum.lines * {LINE / 2}")
    place: dict[str, Any] = {"align": "left", "dx": 5} if right else {"align": "right", "dx": -6}
    written: alt.Chart = (
        alt.Chart(alt.InlineData(values))
        .mark_text(baseline="middle", fontSize=FONT, lineHeight=LINE, dy=middle, **place)
        .encode(y=by_row(rows), text="text:N", x=alt.value("width" if right else 0))
    )
    return written


def tooltips(names: Mapping[str, Any]) -> "list[alt.Tooltip]":
    """Return what is shown of a mark that is pointed at: all its fields of these names."""
    import altair as alt

    return [
        alt.Tooltip(f"{name}:Q", format=".4~f")
        if isinstance(value, float)
        else alt.Tooltip(f"{name}:N")
        for name, value in names.items()
    ]


def _panel(
    panel: Panel, dots: Dots, width: int, *, named: bool
) -> "alt.LayerChart | alt.FacetChart":
    import altair as alt

    heights = sorted({layer.height for layer in dots.layers})
    labels = {row: broken(row, LONGEST_LABEL) for row in dots.rows}
    lines = max(text.count("\n") + 1 for text in labels.values())
    axis = alt.Axis(title=dots.unit, tickCount=max(2, min(6, width // 40)))
    scale = alt.Scale(domain=_domain(panel.marks, dots), nice=False, zero=False)
    look = [(layer.label, layer.colour, layer.shape) for layer in dots.layers]
    names, colours, shapes = (list(each) for each in zip(*look, strict=True))
    values = [_values(mark) for mark in panel.marks]
    base = alt.Chart(alt.InlineData(values)).encode(
        y=by_row(dots.rows),
        yOffset=alt.YOffset("height:O", scale=alt.Scale(domain=heights, paddingOuter=0.6)),
        color=alt.Color("scored:N", scale=alt.Scale(domain=names, range=colours)),
        tooltip=tooltips({name: v for name, v in values[0].items() if name not in _DRAWN}),
    )
    points = base.encode(
        x=alt.X("value:Q", axis=axis, scale=scale),
        shape=alt.Shape("scored:N", scale=alt.Scale(domain=names, range=shapes)),
    )
    layers: list[alt.Chart] = [
        alt.Chart(alt.InlineData([{"x": 0}]))
        .mark_rule(color=GREY)
        .encode(x=alt.X("x:Q", scale=scale))
    ] * dots.zero
    layers += [
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.4)
        .encode(x=alt.X("low:Q", scale=scale), x2="high:Q"),
        points.transform_filter("!datum.hollow").mark_point(filled=True, size=30, opacity=1),
        points.transform_filter("datum.hollow").mark_point(fill="white", size=26, opacity=1),
    ]
    layers += [row_labels(labels, dots.rows)] * named
    layers += [row_labels(panel.right, dots.rows, right=True)] * bool(panel.right)
    title = alt.TitleParams(list(panel.title), anchor="start", frame="group")
    height = len(dots.rows) * max(10 * len(heights) + 6, LINE * lines + 4)
    return alt.layer(*layers, title=title, width=width, height=height)


_DRAWN = ("height", "hollow")
"""Fields that say how a mark is drawn; no reader wants them."""


def _values(mark: Mark) -> dict[str, Any]:
    return {
        "row": mark.row,
        "scored": mark.layer.label,
        "value": mark.value,
        "low": mark.low,
        "high": mark.high,
        **mark.facts,
        "height": mark.layer.height,
        "hollow": mark.hollow,
    }


def _domain(marks: Sequence[Mark], dots: Dots) -> list[float]:
    ends = [end for mark in marks for end in (mark.value, mark.low, mark.high) if end is not None]
    low, high = min(ends + [0.0] * dots.zero), max(ends + [0.0] * dots.zero)
    lacking = max(0.0, dots.span - (high - low)) / 2
    pad = 0.04 * (high - low) or 1.0
    return [low - lacking - pad * (low != 0), high + lacking + pad * (high != 0)]
