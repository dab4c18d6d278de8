"""Seconds per example as a dot plot: runs as rows, median and mean as layers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adafuse.experiments.dots import Dots, Layer, Mark, Panel, draw_dots
from adafuse.experiments.points import RuntimePoint
from adafuse.experiments.style import BLUE, VERMILLION, broken, counted
from adafuse.models.spec import DeviceName

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MEDIAN = Layer("median, bar: quartiles", BLUE, "o", -0.5)
_MEAN = Layer("mean, bar: 95 % interval (bootstrap)", VERMILLION, "D", 0.5)
_RELATIVE = (
    " Factors on the right: mean relative to the sum of the means of the run's models alone."
)
_BATCHED = " Examples that are decoded together share their time."
_UNTIMED = " Other jobs may have run on the machine meanwhile."


def draw_runtime(title: str, points: Sequence[RuntimePoint]) -> "Figure":
    """Draw median with quartiles and mean with interval of every run."""
    rows = list(dict.fromkeys(point.label for point in points))
    benchmarks = dict.fromkeys(point.benchmark for point in points)
    return draw_dots(
        Dots(
            title=title,
            caption=_caption(points),
            unit="seconds per example",
            rows=tuple(rows),
            layers=(_MEDIAN, _MEAN),
            panels=tuple(
                _panel([point for point in points if point.benchmark == name], rows)
                for name in benchmarks
            ),
            zero=True,
        )
    )


def _panel(points: Sequence[RuntimePoint], rows: Sequence[str]) -> Panel:
    marks: list[Mark] = []
    factors = [""] * len(rows)
    for point in points:
        row, one, three = (
            rows.index(point.label),
            point.seconds_quartile_1,
            point.seconds_quartile_3,
        )
        low, high = point.seconds_mean_low_bootstrap95, point.seconds_mean_high_bootstrap95
        marks.append(Mark(row, _MEDIAN, point.seconds_median, one, three))
        marks.append(Mark(row, _MEAN, point.seconds_mean, low, high))
        if (factor := point.mean_relative_to_members) is not None:
            factors[row] = f"{factor:.2f}\N{MULTIPLICATION SIGN}"
    right = tuple(factors) if any(factors) else ()
    return Panel(f"{broken(points[0].benchmark, 20)}\n{_sizes(points)}", tuple(marks), right)


def _sizes(points: Sequence[RuntimePoint]) -> str:
    fewest, most = min(point.n for point in points), max(point.n for point in points)
    return counted(most) if fewest == most else f"n = {fewest:,} to {most:,}"


def _caption(points: Sequence[RuntimePoint]) -> str:
    first = points[0]
    device = DeviceName.parse(first.devices.split()[0]).kind
    parts = [f"Batch size {first.batch_size}, {first.dtype}, device {device}."]
    if any(point.mean_relative_to_members is not None for point in points):
        parts.append(_RELATIVE)
    if first.batch_size > 1:
        parts.append(_BATCHED)
    if not all(point.timed for point in points):
        parts.append(_UNTIMED)
    return "".join(parts)
