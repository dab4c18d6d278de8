"""Dot plots: a row per run or pair, a panel per benchmark, marks with interval bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adafuse.experiments.style import (
    FAINT,
    GREY,
    WIDTH,
    broken,
    label_right,
    new_figure,
    panels,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NARROWEST, _WIDEST_LABEL = 1.3, 30
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
    """Everything that a dot plot shows; `zero` asks for a line at 0."""

    title: str
    caption: str
    unit: str
    rows: tuple[str, ...]
    layers: tuple[Layer, ...]
    panels: tuple[Panel, ...]
    zero: bool = False


def spread(count: int) -> list[float]:
    """Return the places of `count` layers around the middle of a row."""
    return [number - (count - 1) / 2 for number in range(count)]


def draw_dots(dots: Dots) -> "Figure":
    """Draw the panels side by side, as many as fit; only the first of a row has labels."""
    labels = [broken(row, _WIDEST_LABEL) for row in dots.rows]
    columns = fitting(len(dots.panels), text_width(labels))
    deep = max(label.count("\n") + 1 for label in labels)
    heights = len({layer.place for layer in dots.layers})
    row_height = max(0.15 * deep, 0.1 + 0.085 * heights)
    lines = -(-len(dots.panels) // columns)
    figure = new_figure(lines * (0.85 + row_height * len(labels)) + 0.3, dots.title, dots.caption)
    for number, axes in enumerate(panels(figure, len(dots.panels), columns)):
        _draw_panel(axes, dots, dots.panels[number], columns)
        axes.set_yticks(range(len(labels)), labels if number % columns == 0 else [""] * len(labels))
    draw_legend(figure, dots.layers)
    return figure


def fitting(count: int, label_width: float) -> int:
    """Return how many of `count` panels stand side by side, beside labels of some inches."""
    return max(1, min(count, int((WIDTH - label_width - 0.2) / _NARROWEST)))


def draw_legend(figure: "Figure", layers: Sequence[Layer]) -> None:
    """Explain the layers above the panels, if there is more than one."""
    from matplotlib.lines import Line2D

    if len(layers) > 1:
        handles = [
            Line2D([], [], color=each.colour, marker=each.marker, linestyle="", label=each.label)
            for each in layers
        ]
        figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))


def _draw_panel(axes: "Axes", dots: Dots, panel: Panel, columns: int) -> None:
    for mark in panel.marks:
        _draw_mark(axes, mark)
    axes.set_ylim(len(dots.rows) - 0.4, -0.6)
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(dots.unit)
    axes.grid(color=FAINT, linewidth=0.6)
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=4 if columns > 2 else 7)
    if dots.zero:
        axes.axvline(0, color=GREY, linewidth=1, zorder=1)
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
