"""Words per round as stacked bars: runs as rows, benchmarks as panels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adafuse.experiments.dots import fitting
from adafuse.experiments.points import WordsPoint
from adafuse.experiments.style import (
    BLACK,
    broken,
    counted,
    label_right,
    new_figure,
    panels,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CAPTION = (
    "Shares of the n rounds that committed at least one word. The 95 % intervals (Wilson) are in"
    " the CSV file."
)
_FITS = 4.5
"""Percent of a panel over the whole width in which a number of two digits can be read."""


def draw_words(title: str, points: Sequence[WordsPoint]) -> "Figure":
    """Draw the shares of every run as parts of one bar, with n at its end."""
    rows = list(dict.fromkeys(point.label for point in points))
    benchmarks = list(dict.fromkeys(point.benchmark for point in points))
    labels = [broken(row, 30) for row in rows]
    columns = fitting(len(benchmarks), text_width(labels) + 0.7)
    shades = _shades(max(point.words for point in points))
    body = -(-len(benchmarks) // columns) * (0.75 + 0.24 * len(rows))
    used = sorted({point.words for point in points})
    figure = new_figure(body, title, _CAPTION, _legend(used, shades))
    for number, axes in enumerate(panels(figure, range(len(benchmarks)), columns)):
        chosen = [point for point in points if point.benchmark == benchmarks[number]]
        _draw_panel(axes, chosen, rows, shades, _FITS * columns)
        axes.set_title(broken(benchmarks[number], 20), loc="left")
        axes.set_yticks(range(len(rows)), labels if number % columns == 0 else [""] * len(rows))
    return figure


def _draw_panel(
    axes: "Axes",
    points: Sequence[WordsPoint],
    rows: Sequence[str],
    shades: Sequence[str],
    fits: float,
) -> None:
    ends = [0.0] * len(rows)
    for point in sorted(points, key=lambda each: each.words):
        row, shade = rows.index(point.label), shades[point.words - 1]
        axes.barh(row, point.share, left=ends[row], color=shade, height=0.72)
        if point.share >= fits:
            ink = _ink(shade)
            middle = ends[row] + point.share / 2
            axes.text(middle, row, f"{point.share:.0f}", ha="center", va="center", color=ink)
        ends[row] += point.share
    axes.set_xlim(0, 100)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("share of rounds in percent")
    axes.tick_params(axis="y", length=0)
    sizes = {point.label: counted(point.n) for point in points}
    label_right(axes, [sizes.get(row, "") for row in rows])


def _legend(used: Sequence[int], shades: Sequence[str]) -> "list[Artist]":
    from matplotlib.patches import Patch

    return [
        Patch(color=shades[words - 1], label=f"{words} word{'s' * (words > 1)}") for words in used
    ]


def _shades(most: int) -> list[str]:
    """Return light to dark blues; their lightness tells them apart without colour."""
    import matplotlib as mpl
    from matplotlib.colors import to_hex

    blues = mpl.colormaps["Blues"]
    return [to_hex(blues(0.2 + 0.75 * number / max(1, most - 1))) for number in range(most)]


def _ink(shade: str) -> str:
    """Return black or white, whichever can be read on a colour."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(shade)
    return BLACK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#FFFFFF"
