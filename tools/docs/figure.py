"""The figure of docs/method.md: an example of the toy world, drawn round by round."""

from pathlib import Path
from typing import Any

import altair as alt

import adafuse.toy
from adafuse.records.result import Candidate, Result, Round
from adafuse.report.charts import (
    BLACK,
    BLUE,
    FAINT,
    FONT,
    GREY,
    VERMILLION,
    Spec,
    composed,
    figure,
    layered,
    rendered,
)

FILE = "docs/figures/method.svg"
MODELS = ("mistral", "llama")
PROMPT = "Question: Which city is the capital of Rustan?\nAnswer:"
TAU, MAX_WORDS, BRANCHING = 0.7, 3, 2

_COLOURS = (BLUE, VERMILLION)
_NAMES = [*MODELS, "F, their mean"]
_LINE, _WORDS_WIDTH, _SCORES_WIDTH = 26, 405, 270
"""Pixels: the height of a candidate, and the widths of both halves."""

_TITLE = "“Which city is the capital of Rustan?” decoded by two models, round by round"
_CAPTION = (
    f"The toy models mistral and llama, τ = {TAU}, M = {MAX_WORDS}, B = {BRANCHING}. Each line is a"
    " candidate: its proposer, the margins p(1) - p(2) that this model read at the start of each"
    " word, and its NLL under both models. The smallest F, their mean, wins (shaded). \\n is a line"
    " break, the stop string."
)


def decode() -> Result:
    """Decode the example."""
    from adafuse.ensemble import Ensemble

    folder = Path(adafuse.toy.__file__).parent / "models"
    ensemble = Ensemble.from_pretrained([str(folder / name) for name in MODELS], device="cpu")
    (result,) = ensemble.generate(
        [PROMPT],
        stop=["\n"],
        max_new_tokens=32,
        tau=TAU,
        max_words=MAX_WORDS,
        branching=BRANCHING,
    )
    return result


def draw(result: Result) -> bytes:
    """Return the figure as an SVG file; its background is white, whatever it stands on."""
    high = 1.2 * max(max(each.nll) for taken in result.rounds for each in taken.candidates)
    before, rounds = "", []
    for number, taken in enumerate(result.rounds):
        heading = f"round {number + 1}:  Y = “{before}”"
        halves = _words(taken, heading), _scores(taken, high)
        rounds.append(composed("hconcat", halves, spacing=10))
        before += taken.candidates[taken.selected or 0].text
    chart = figure(composed("vconcat", rounds, spacing=10), _TITLE, _CAPTION, _NAMES)
    return rendered(chart, "svg")


def _lines(taken: Round, width: int, *layers: Any, **more: Any) -> Spec:
    """Give each candidate a line, the first at the top; that of the winner is shaded."""
    won = [] if taken.selected is None else [{"line": taken.selected}]
    shade = alt.Chart(alt.InlineData(won)).mark_bar(color=FAINT, height=_LINE, opacity=1)
    rows = alt.Y(
        "line:O", axis=None, scale=alt.Scale(domain=list(range(len(taken.candidates))), padding=0)
    )
    shaded = shade.encode(y=rows, x=alt.value(0), x2=alt.value("width"))
    drawn = (layer.encode(y=rows) for layer in layers)
    return layered([shaded, *drawn], width, _LINE * len(taken.candidates), **more)


def _words(taken: Round, heading: str) -> Spec:
    def text(place: int, words: list[str], colours: list[str], bold: bool = False) -> Any:
        values = [
            {"line": line, "text": word, "ink": ink, "bold": bold and line == taken.selected}
            for line, (word, ink) in enumerate(zip(words, colours, strict=True))
        ]
        weight = alt.expr("datum.bold ? 'bold' : 'normal'")
        return (
            alt.Chart(alt.InlineData(values))
            .mark_text(align="left", dx=4, fontSize=FONT, fontWeight=weight)
            .encode(text="text:N", color=alt.Color("ink:N", scale=None), x=alt.value(place))
        )

    first = [candidate.proposers[0] for candidate in taken.candidates]
    writers = [" and ".join(MODELS[k] for k in each.proposers) for each in taken.candidates]
    margins = [_margins(taken.margins[model]) for model in first]
    spans = [shown(candidate) for candidate in taken.candidates]
    return _lines(
        taken,
        _WORDS_WIDTH,
        text(0, writers, [_COLOURS[model] for model in first]),
        text(100, margins, [GREY] * len(first)),
        text(280, spans, [BLACK] * len(first), bold=True),
        title=alt.TitleParams(heading, anchor="start", frame="group", fontWeight="bold"),
    )


def _margins(margins: tuple[float, ...]) -> str:
    confident = all(margin >= TAU for margin in margins)
    values = ", ".join(f"{margin:.2f}" for margin in margins)
    return f"{values} {'≥ τ: confident' if confident else '< τ: not confident'}"


def shown(candidate: Candidate) -> str:
    """Return a span as the figure writes it."""
    return candidate.text.replace("\n", " \\n").strip(" ")


def _scores(taken: Round, high: float) -> Spec:
    values = [
        {"line": line, "of": name, "value": value, "fused": f"F {each.fused:.2f}",
         "low": min(each.nll), "high": max(each.nll)}
        for line, each in enumerate(taken.candidates)
        for name, value in zip(_NAMES, (*each.nll, each.fused), strict=True)
    ]  # fmt: skip
    axis = alt.Axis(title="NLL, nats per token", tickCount=5)
    scale = alt.Scale(domain=[0, high], nice=False)
    base = alt.Chart(alt.InlineData(values))
    marks = base.mark_point(filled=True, opacity=1, size=45).encode(
        x=alt.X("value:Q", axis=axis, scale=scale),
        color=alt.Color("of:N", scale=alt.Scale(domain=_NAMES, range=[*_COLOURS, BLACK])),
        shape=alt.Shape(
            "of:N", scale=alt.Scale(domain=_NAMES, range=["circle", "square", "diamond"])
        ),
    )
    last = base.transform_filter(f"datum.of === {_NAMES[-1]!r}")
    spans = last.mark_rule(color=GREY).encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
    sums = last.mark_text(align="left", dx=8, fontSize=FONT).encode(x="high:Q", text="fused:N")
    return _lines(taken, _SCORES_WIDTH, spans, marks, sums)
