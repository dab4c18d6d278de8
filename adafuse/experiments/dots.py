"""Dot plots: a row per run or pair, a panel per benchmark, marks with interval bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from adafuse.experiments.style import (
    FAINT,
    GREY,
    WIDTH,
    balanced,
    broken,
    few_ticks,
    label_right,
    new_figure,
    panels,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NARROWEST, _WIDEST_LABEL = 1.3, 24
_LAYER = 0.24


@dataclass(frozen=True, slots=True)
class Layer:
    """One kind of mark; `place` is its height in a row, counted in layers from the middle."""

    label: str
    colour: str
    marker: str
    place: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A value in a row with the ends of its bar; `hollow` ones have no filling."""

    row: int
    layer: Layer
    value: float
    low: float | None
    high: float | None
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A title, marks, and what stands at the right end of each row, if anything."""

    title: str
    marks: tuple[Mark, ...]
    right: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dots:
    """Everything that a dot plot shows.

    `zero` asks for a line at 0. No axis covers less than `span`, so that differences that mean
    nothing do not look large.
    """

    title: str
    caption: str
    unit: str
    rows: tuple[str, ...]
    layers: tuple[Layer, ...]
    panels: tuple[Panel, ...]
    zero: bool = False
    span: float = 0.0


def spread(count: int) -> list[float]:
    """Return the places of `count` layers around the middle of a row."""
    return [number - (count - 1) / 2 for number in range(count)]


def draw_dots(dots: Dots) -> "Figure":
    """Draw the panels side by side, as many as fit; only the first of a row has labels."""
    labels = [broken(row, _WIDEST_LABEL) for row in dots.rows]
    columns = fitting(len(dots.panels), text_width(labels))
    body = -(-len(dots.panels) // columns) * (0.9 + _row_height(dots.layers, labels) * len(labels))
    figure = new_figure(body, dots.title, dots.caption, _legend(dots.layers))
    for number, axes in enumerate(panels(figure, range(len(dots.panels)), columns)):
        _draw_panel(axes, dots, dots.panels[number], columns)
        axes.set_yticks(range(len(labels)), labels if number % columns == 0 else [""] * len(labels))
    return figure


def fitting(count: int, label_width: float) -> int:
    """Return how many of `count` panels stand side by side, beside labels of some inches."""
    return balanced(count, max(1, int((WIDTH - label_width - 0.2) / _NARROWEST)))


def _row_height(layers: Sequence[Layer], labels: Sequence[str]) -> float:
    """Return inches in which neither the layers nor the lines of neighbouring labels collide."""
    lines = [label.count("\n") + 1 for label in labels]
    crowded = max((one + next_one for one, next_one in pairwise(lines)), default=lines[0])
    return max(0.1 + 0.085 * len({layer.place for layer in layers}), 0.08 * crowded)


def _legend(layers: Sequence[Layer]) -> "list[Artist]":
    from matplotlib.lines import Line2D

    return [
        Line2D(
            [],
            [],
            color=layer.colour,
            marker=layer.marker,
            markersize=4,
            linestyle="",
            label=layer.label,
        )
        for layer in layers
    ]


def _draw_panel(axes: "Axes", dots: Dots, panel: Panel, columns: int) -> None:
    for mark in panel.marks:
        _draw_mark(axes, mark)
    axes.set_ylim(len(dots.rows) - 0.4, -0.6)
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(dots.unit)
    axes.grid(color=FAINT, linewidth=0.6)
    axes.tick_params(axis="y", length=0)
    few_ticks(axes.xaxis, 5 if columns > 2 else 8)
    if dots.zero:
        axes.axvline(0, color=GREY, linewidth=1, zorder=1)
    low, high = axes.get_xlim()
    if (lacking := dots.span - (high - low)) > 0:
        axes.set_xlim(low - lacking / 2, high + lacking / 2)
    if panel.right:
        label_right(axes, panel.right)


def _draw_mark(axes: "Axes", mark: Mark) -> None:
    layer, height = mark.layer, mark.row + _LAYER * mark.layer.place
    if mark.low is not None and mark.high is not None:
        axes.hlines(height, mark.low, mark.high, color=layer.colour, linewidth=1.1, zorder=2)
    axes.plot(
        mark.value,
        height,
        marker=layer.marker,
        color=layer.colour,
        markerfacecolor="white" if mark.hollow else layer.colour,
        markersize=4,
        linestyle="",
        zorder=3,
    )
