"""The figure of docs/method.md: an example of the toy world, drawn round by round."""

from pathlib import Path
from typing import TYPE_CHECKING

import adafuse.toy
from adafuse.experiments.style import (
    BLACK,
    BLUE,
    FAINT,
    GREY,
    VERMILLION,
    new_figure,
    stored,
    styled,
)
from adafuse.records import Candidate, Result, Round

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILE = "docs/figures/method.svg"
MODELS = ("mistral", "llama")
PROMPT = "Question: Which city is the capital of Rustan?\nAnswer:"
TAU, MAX_WORDS, BRANCHING = 0.7, 3, 2

_COLOURS, _MARKERS = (BLUE, VERMILLION), ("o", "s")
_LINE, _HEAD = 0.27, 0.75
"""Inches: of a candidate, and of what stands above and below them in a round."""

_TITLE = "“Which city is the capital of Rustan?” decoded by two models, round by round"
_CAPTION = (
    f"The toy models mistral and llama, τ = {TAU}, M = {MAX_WORDS}, B = {BRANCHING}. Each line is a"
    " candidate: who proposed it, the margins p(1) - p(2) that this model read at the start of each"
    " word, and what both models say of it. The smallest F, the mean of both, wins (shaded). ⏎ is a"
    " line end, which is the task's stop string."
)


def decode() -> Result:
    """Decode the example."""
    from adafuse.ensemble import Ensemble

    folder = Path(adafuse.toy.__file__).parent / "models"
    ensemble = Ensemble.from_pretrained([str(folder / name) for name in MODELS], device="cpu")
    options = {"tau": TAU, "max_words": MAX_WORDS, "branching": BRANCHING}
    (result,) = ensemble.generate([PROMPT], stop=["\n"], max_new_tokens=32, **options)
    return result


def draw(result: Result) -> bytes:
    """Return the figure as an SVG file; its background is white, whatever it stands on."""
    with styled():
        heights = [_LINE * len(taken.candidates) + _HEAD for taken in result.rounds]
        figure = new_figure(sum(heights), _TITLE, _CAPTION, _legend())
        grid = figure.add_gridspec(len(heights), 2, width_ratios=(3, 2), height_ratios=heights)
        high = max(max(each.nll) for taken in result.rounds for each in taken.candidates)
        before = ""
        for number, taken in enumerate(result.rounds):
            words, scores = (figure.add_subplot(grid[number, column]) for column in range(2))
            _draw_words(words, taken, f"round {number + 1}:  Y = “{before}”")
            _draw_scores(scores, taken, 1.2 * high)
            before += taken.candidates[taken.selected or 0].text
        return _on_white(figure)


def _on_white(figure: "Figure") -> bytes:
    figure.patch.set_facecolor("white")
    return stored(figure, "svg")


def _legend() -> list["Artist"]:
    from matplotlib.lines import Line2D

    looks = zip((*MODELS, "F, their mean"), (*_MARKERS, "D"), (*_COLOURS, BLACK), strict=True)
    return [Line2D([], [], ls="", marker=m, color=c, label=n) for n, m, c in looks]


def _rows(axes: "Axes", taken: Round) -> None:
    """Make a line for each candidate, the first at the top, that of the winner shaded."""
    axes.set_ylim(len(taken.candidates) - 0.5, -0.5)
    axes.set_yticks([])
    if taken.selected is not None:
        axes.axhspan(taken.selected - 0.5, taken.selected + 0.5, color=FAINT, lw=0)


def _draw_words(axes: "Axes", taken: Round, heading: str) -> None:
    _rows(axes, taken)
    axes.set(xlim=(0, 1), xticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(heading, loc="left", weight="bold")
    for line, candidate in enumerate(taken.candidates):
        writers = " and ".join(MODELS[number] for number in candidate.proposers)
        first = candidate.proposers[0]
        axes.text(0.01, line, writers, va="center", color=_COLOURS[first])
        axes.text(0.17, line, _margins(taken.margins[first]), va="center", color=GREY)
        won = line == taken.selected
        axes.text(0.66, line, shown(candidate), va="center", weight="bold" if won else "normal")


def _margins(margins: tuple[float, ...]) -> str:
    sure = all(margin >= TAU for margin in margins)
    values = ", ".join(f"{margin:.2f}" for margin in margins)
    return f"{values} {'≥ τ: sure' if sure else '< τ: not sure'}"


def shown(candidate: Candidate) -> str:
    """Return a span as the figure writes it."""
    return candidate.text.replace("\n", " ⏎").strip(" ")


def _draw_scores(axes: "Axes", taken: Round, high: float) -> None:
    _rows(axes, taken)
    axes.set(xlim=(0, high), xlabel="NLL, nats per token")
    axes.spines["left"].set_visible(False)
    for line, candidate in enumerate(taken.candidates):
        axes.plot(candidate.nll, [line] * len(candidate.nll), color=GREY, lw=0.8)
        for number, value in enumerate(candidate.nll):
            axes.plot(value, line, _MARKERS[number], color=_COLOURS[number], clip_on=False)
        axes.plot(candidate.fused, line, "D", color=BLACK, ms=4)
        axes.text(max(candidate.nll) + 0.02 * high, line, f" F {candidate.fused:.2f}", va="center")
