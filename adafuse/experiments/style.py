"""How all figures look: sizes, colours, words around the panels, and how they are stored."""

import io
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH = 7.2
"""Inches: the text of a page, or two columns of a paper."""

FONT = 8
"""Points; nothing is smaller."""

# M. Okabe and K. Ito, Color universal design, 2008, without the yellow, which is faint on white.
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, ORANGE, BLACK = "#56B4E9", "#E69F00", "#000000"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, SKY, ORANGE, BLACK)
MARKERS = ("o", "s", "D", "^", "v", "P")
GREY, FAINT = "#595959", "#E3E3E3"

PROTOCOL_COLOURS = {"strict": BLUE, "published": VERMILLION}

_CHARACTER = 0.068
"""Inches that a character of `FONT` points takes on average, a little generous."""

_MARGIN = 0.08
_TITLE_LINE, _LEGEND_LINE, _CAPTION_LINE = 0.18, 0.2, 0.135
"""Inches."""
_TITLE, _CAPTION = 82, 116
"""Characters in a line."""

_SETTINGS: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that layouts are the same everywhere
    "font.size": FONT,
    "axes.titlesize": FONT,
    "axes.labelsize": FONT,
    "xtick.labelsize": FONT,
    "ytick.labelsize": FONT,
    "legend.fontsize": FONT,
    "figure.titlesize": FONT + 2,
    "figure.dpi": 100,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "text.parse_math": False,  # a title may speak of dollars
    "svg.fonttype": "none",  # text stays text: searchable, and sharp at any size
    "svg.hashsalt": "adafuse",
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw and store figures in here; the settings of the process come back afterwards."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def text_width(texts: Sequence[str]) -> float:
    """Return the inches that the longest of some labels needs."""
    return _CHARACTER * max((len(line) for text in texts for line in text.split("\n")), default=0)


def new_figure(body: float, title: str, caption: str, legend: "Sequence[Artist]" = ()) -> "Figure":
    """Return a figure of `WIDTH` with room for `body` inches of panels.

    Args:
        body: height of the panels.
        title: stands at the top.
        caption: stands below the panels.
        legend: labelled artists, explained between title and panels.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    title, caption = textwrap.fill(title, _TITLE), textwrap.fill(caption, _CAPTION)
    labels = [str(artist.get_label()) for artist in legend]
    columns = max(1, int(WIDTH / (text_width(labels) + 0.55)))
    lines = max((label.count("\n") + 1 for label in labels), default=0)
    head = _MARGIN + _TITLE_LINE * (title.count("\n") + 1)
    top = head + _LEGEND_LINE * lines * math.ceil(len(legend) / columns) + _MARGIN
    bottom = 2 * _MARGIN + _CAPTION_LINE * (caption.count("\n") + 1)
    height = top + body + bottom
    area = (0, bottom / height, 1, body / height)
    figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(rect=area))
    left = _MARGIN / WIDTH
    figure.suptitle(title, x=left, y=1 - _MARGIN / height, ha="left", va="top", weight="bold")
    figure.text(left, _MARGIN / height, caption, va="bottom", color=GREY)
    if legend:
        place = (0, 1 - head / height)
        figure.legend(handles=list(legend), ncols=columns, loc="upper left", bbox_to_anchor=place)
    return figure


def balanced(count: int, most: int) -> int:
    """Return in how many columns, at most `most`, `count` panels fill their rows evenly."""
    return math.ceil(count / math.ceil(count / most))


def panels(figure: "Figure", places: Sequence[int], columns: int) -> "list[Axes]":
    """Return axes at places that are counted row by row, `columns` to a row."""
    grid = figure.add_gridspec(max(places) // columns + 1, columns)
    return [figure.add_subplot(grid[place // columns, place % columns]) for place in places]


def label_right(axes: "Axes", labels: Sequence[str]) -> None:
    """Write a label at the right end of each row, counted from 0."""
    side = axes.secondary_yaxis("right")
    side.set_yticks(range(len(labels)), labels)
    side.tick_params(length=0)
    side.spines["right"].set_visible(False)


def broken(name: str, width: int) -> str:
    """Break the lines of a label that are longer than `width` behind `_`, `-`, `+` or a blank."""
    return "\n".join(_broken_line(line, width) for line in name.split("\n"))


def _broken_line(line: str, width: int) -> str:
    lines = [""]
    for part in re.findall(r"[^_+ -]*[_+ -]|[^_+ -]+", line):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(each.rstrip() for each in lines)


def few_ticks(axis: "Axis", count: int) -> None:
    """Put at most `count` intervals of round numbers on an axis."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(count, steps=[1, 2, 5, 10]))


def counted(n: int) -> str:
    """Return a number of rows as figures print it."""
    return f"n = {n:,}"


def stored(figure: "Figure", kind: str) -> bytes:
    """Return a figure as the bytes of an "svg" or "png" file; the same figure, the same bytes."""
    buffer = io.BytesIO()
    no_dates = {"Date": None, "Creator": "AdaFuse"} if kind == "svg" else {"Software": None}
    figure.savefig(buffer, format=kind, dpi=200, metadata=no_dates)
    return buffer.getvalue()
