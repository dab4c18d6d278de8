"""Differences between runs as a dot plot: pairs as rows, benchmarks as panels."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from adafuse.experiments.dots import Dots, Layer, Mark, Panel, draw_dots
from adafuse.experiments.draw_scores import panel_title, protocol_layers
from adafuse.experiments.points import DifferencePoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CAPTION = (
    "First run minus second run, on the same rows, with 95 % intervals (accuracies: Newcombe, for"
    " paired proportions; BLEU: paired bootstrap). Filled: p below 0.05 after Holm's correction for"
    " all pairs of the benchmark (McNemar's exact test; BLEU: paired bootstrap) and an interval"
    " without 0. Hollow: no such difference was shown."
)


def draw_paired(title: str, points: Sequence[DifferencePoint]) -> "Figure":
    """Draw every difference with its interval; significant ones are filled."""
    rows = list(dict.fromkeys(_pair(point) for point in points))
    layers = protocol_layers([point.protocol for point in points])
    return draw_dots(
        Dots(
            title=title,
            caption=_CAPTION,
            unit="difference in points",
            rows=tuple(rows),
            layers=tuple(layers.values()),
            panels=tuple(
                _panel(benchmark, points, rows, layers)
                for benchmark in dict.fromkeys(point.benchmark for point in points)
            ),
            zero=True,
        )
    )


def _pair(point: DifferencePoint) -> str:
    return f"{point.label}\n\N{MINUS SIGN} {point.against_label}"


def _panel(
    benchmark: str,
    points: Sequence[DifferencePoint],
    rows: Sequence[str],
    layers: Mapping[str, Layer],
) -> Panel:
    chosen = [point for point in points if point.benchmark == benchmark]
    marks = tuple(
        Mark(
            row=rows.index(_pair(point)),
            layer=layers[point.protocol],
            value=point.difference,
            low=point.difference_low,
            high=point.difference_high,
            hollow=not point.significant,
        )
        for point in chosen
    )
    return Panel(panel_title(chosen), marks)
