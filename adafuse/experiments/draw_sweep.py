"""Scores over an option as lines: a panel per benchmark and protocol, a line per series."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from adafuse.experiments.points import SweepPoint
from adafuse.experiments.style import (
    COLOURS,
    FAINT,
    MARKERS,
    balanced,
    broken,
    counted,
    few_ticks,
    new_figure,
    panels,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_LineStyle = Literal["-", "--", "-.", ":"]

_CAPTION = "Bands and bars: 95 % intervals (Wilson; bootstrap for BLEU)."
_COLUMNS, _HEIGHT, _WIDEST_LABEL = 3, 2.1, 90
_DASHES: tuple[_LineStyle, ...] = ("-", "--", "-.", ":")
_FEW = 12
"""Integer values up to this many get a tick each."""


@dataclass(frozen=True, slots=True)
class _Line:
    """How a series is drawn; one below others can be seen even where they agree."""

    colour: str
    marker: str
    size: float
    dashes: _LineStyle


def draw_sweep(title: str, points: Sequence[SweepPoint]) -> "Figure":
    """Draw every series with its intervals; a legend names them if there are several."""
    protocols = list(dict.fromkeys(point.protocol for point in points))
    benchmarks = list(dict.fromkeys(point.benchmark for point in points))
    series = list(dict.fromkeys(point.series for point in points))
    lines = {name: _line(number, len(series)) for number, name in enumerate(series)}
    columns = balanced(len(benchmarks), _COLUMNS)
    deep = -(-len(benchmarks) // columns)
    figure = new_figure(len(protocols) * deep * _HEIGHT, title, _CAPTION, _legend(lines))
    # Each protocol begins a row of its own.
    places = {
        (protocol, benchmark): block * deep * columns + number
        for block, protocol in enumerate(protocols)
        for number, benchmark in enumerate(benchmarks)
    }
    for axes, cell in zip(panels(figure, list(places.values()), columns), places, strict=True):
        chosen = [point for point in points if (point.protocol, point.benchmark) == cell]
        _draw_panel(axes, chosen, lines)
    return figure


def _line(number: int, count: int) -> _Line:
    return _Line(
        colour=COLOURS[number % len(COLOURS)],
        marker=MARKERS[number % len(MARKERS)],
        size=4 + 1.5 * min(3, count - 1 - number),
        dashes=_DASHES[number % len(_DASHES)],
    )


def _draw_panel(axes: "Axes", points: Sequence[SweepPoint], lines: Mapping[str, _Line]) -> None:
    first = points[0]
    for name, line in lines.items():
        mine = sorted((each for each in points if each.series == name), key=lambda each: each.x)
        _draw_series(axes, mine, line)
    name = broken(f"{first.benchmark}, {first.metric.replace('_', ' ')}", 34)
    axes.set_title(f"{name}\n{first.protocol} scoring, {counted(first.n)}", loc="left")
    axes.set_xlabel(_axis(points))
    axes.set_ylabel("score in percent")
    axes.grid(color=FAINT, linewidth=0.6)
    few_ticks(axes.yaxis, 6)
    _set_ticks(axes, [point.x for point in points])


def _draw_series(axes: "Axes", points: Sequence[SweepPoint], line: _Line) -> None:
    x, y = [point.x for point in points], [point.value for point in points]
    low, high = [point.low for point in points], [point.high for point in points]
    if len(points) > 1:
        axes.fill_between(x, low, high, color=line.colour, alpha=0.15, linewidth=0)
    else:
        axes.vlines(x, low, high, color=line.colour, linewidth=1.1)
    axes.add_line(_artist(line, x, y))
    axes.autoscale_view()


def _axis(points: Sequence[SweepPoint]) -> str:
    """Name the option; where methods have different ones, say whose is which."""
    owners = dict.fromkeys((point.option, point.method) for point in points)
    options = list(dict.fromkeys(option for option, _ in owners))
    if len(options) == 1:
        return options[0]
    return "\n".join(f"{option} ({method})" for option, method in owners)


def _set_ticks(axes: "Axes", values: Sequence[float]) -> None:
    """Whole numbers get a tick each while they are few; none gets one in between."""
    from matplotlib.ticker import MaxNLocator

    distinct = sorted(set(values))
    if not all(isinstance(value, int) for value in distinct):
        few_ticks(axes.xaxis, 6)
    elif len(distinct) <= _FEW:
        axes.set_xticks(distinct)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _legend(lines: Mapping[str, _Line]) -> "list[Artist]":
    """Return nothing for a single series."""
    if len(lines) == 1:
        return []
    return [_artist(line, [], [], broken(name, _WIDEST_LABEL)) for name, line in lines.items()]


def _artist(line: _Line, x: Sequence[float], y: Sequence[float], label: str = "") -> "Line2D":
    from matplotlib.lines import Line2D

    return Line2D(
        x,
        y,
        color=line.colour,
        marker=line.marker,
        markersize=line.size,
        linestyle=line.dashes,
        linewidth=1.3,
        label=label,
    )
