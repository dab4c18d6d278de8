"""How all figures look: sizes, colours, words around the panels, and how they are stored."""

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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


def new_figure(height: float, title: str, caption: str) -> "Figure":
    """Return an empty figure of `WIDTH` by `height` inches with a title and a caption below."""
    from matplotlib.figure import Figure

    lines = textwrap.wrap(caption, math.floor((WIDTH - 0.2) / 0.0585))
    figure = Figure(figsize=(WIDTH, height + 0.14 * len(lines) + 0.25), layout="constrained")
    figure.suptitle("\n".join(textwrap.wrap(title, 88)), x=0.01, ha="left", weight="bold")
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=FONT, color=GREY)
    return figure


def panels(figure: "Figure", count: int, columns: int) -> list["Axes"]:
    """Return `count` axes in rows of `columns`; places that are left over stay empty."""
    rows = math.ceil(count / columns)
    grid = figure.add_gridspec(rows, columns)
    return [
        figure.add_subplot(grid[number // columns, number % columns]) for number in range(count)
    ]


def label_right(axes: "Axes", labels: Sequence[str]) -> None:
    """Write a label at the right end of each row, counted from 0."""
    side = axes.secondary_yaxis("right")
    side.set_yticks(range(len(labels)), labels)
    side.tick_params(length=0)
    side.spines["right"].set_visible(False)


def broken(name: str, width: int) -> str:
    """Break a name that is longer than `width` characters behind `_`, `-`, `+` or a blank."""
    spaced = name
    for mark in "_-+":
        spaced = spaced.replace(mark, f"{mark}\u200b")
    lines = [""]
    for part in spaced.replace(" ", " \u200b").split("\u200b"):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def counted(n: int) -> str:
    """Return a number of rows as figures print it."""
    return f"n = {n:,}"


def stored(figure: "Figure", kind: str) -> bytes:
    """Return a figure as the bytes of an "svg" or "png" file; the same figure, the same bytes."""
    buffer = io.BytesIO()
    no_dates = {"Date": None, "Creator": "AdaFuse"} if kind == "svg" else {"Software": None}
    figure.savefig(buffer, format=kind, dpi=200, metadata=no_dates)
    return buffer.getvalue()
