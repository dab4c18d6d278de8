"""Scores as a dot plot: runs as rows, benchmarks as panels, protocols as colours."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from adafuse.experiments.dots import Dots, Layer, Mark, Panel, draw_dots, spread
from adafuse.experiments.points import MACRO_AVERAGE, DifferencePoint, ScorePoint
from adafuse.experiments.style import BLACK, PROTOCOL_COLOURS, broken, counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAPER = "the paper's Table 1 (compare with published scoring only)"
_SPAN = 10.0
_REMARKS = {
    "average": "The macro average is the mean of a run's scores.",
    "oracle": (
        "Hollow (oracle): chosen with the answers of the very rows that are scored; it says how far"
        " choosing could get, and is no method."
    ),
    "development": "(development): chosen by scores on other rows.",
    "paper": (
        "Crosses: the paper's own numbers, which were not measured here; they are comparable only"
        " with our scores under the published protocol."
    ),
}


def draw_scores(title: str, points: Sequence[ScorePoint]) -> "Figure":
    """Draw every score with its interval; oracles hollow, the paper's values as crosses."""
    rows = list(dict.fromkeys(point.label for point in points))
    layers = protocol_layers([point.protocol for point in points])
    if paper := next((point for point in points if point.paper is not None), None):
        layers[_PAPER] = Layer(_PAPER, BLACK, "x", layers[paper.protocol].place)
    return draw_dots(
        Dots(
            title=title,
            caption=f"95 % intervals (Wilson; bootstrap for BLEU). {remarks(points)}".strip(),
            unit="score in percent",
            span=_SPAN,
            rows=tuple(rows),
            layers=tuple(layers.values()),
            panels=tuple(
                _panel(benchmark, points, rows, layers)
                for benchmark in dict.fromkeys(point.benchmark for point in points)
            ),
        )
    )


def protocol_layers(protocols: Sequence[str]) -> dict[str, Layer]:
    """Return a layer for each protocol, in the order of their first occurrence."""
    names = list(dict.fromkeys(protocols))
    return {
        name: Layer(f"{name} scoring", PROTOCOL_COLOURS[name], marker, place)
        for name, marker, place in zip(names, "os", spread(len(names)), strict=False)
    }


def panel_title(points: Sequence[ScorePoint | DifferencePoint]) -> str:
    """Return benchmark, metric and number of rows of a panel's points, which share all but n."""
    name, metric = points[0].benchmark, points[0].metric.replace("_", " ")
    sizes = {point.protocol: point.n for point in points if point.n is not None}
    if not sizes:
        return name
    if len(set(sizes.values())) == 1:
        return f"{broken(name, 20)}\n{metric}, {counted(next(iter(sizes.values())))}"
    each = [f"{counted(n)} ({protocol})" for protocol, n in sizes.items()]
    return "\n".join([broken(f"{name}, {metric}", 20), *each])


def remarks(points: Sequence[ScorePoint]) -> str:
    """Return what a reader of these points must know."""
    marks = {point.selection for point in points}
    marks |= {"paper" for point in points if point.paper is not None}
    marks |= {"average" for point in points if point.benchmark == MACRO_AVERAGE}
    return " ".join(text for mark, text in _REMARKS.items() if mark in marks)


def _panel(
    benchmark: str, points: Sequence[ScorePoint], rows: Sequence[str], layers: Mapping[str, Layer]
) -> Panel:
    chosen = [point for point in points if point.benchmark == benchmark]
    marks = [mark for point in chosen for mark in _marks(point, rows.index(point.label), layers)]
    return Panel(panel_title(chosen), tuple(marks))


def _marks(point: ScorePoint, row: int, layers: Mapping[str, Layer]) -> list[Mark]:
    hollow = point.selection == "oracle"
    own = Mark(row, layers[point.protocol], point.value, point.low, point.high, hollow)
    paper = [] if point.paper is None else [Mark(row, layers[_PAPER], point.paper, None, None)]
    return [own, *paper]
