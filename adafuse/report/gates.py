"""What gates learned: how much each feature matters, and how far a gate can be trusted."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle

import altair as alt
import polars as pl

from adafuse.decoding.gate import read_gate
from adafuse.errors import UserError
from adafuse.report.charts import (
    COLOURS,
    GREY,
    SHAPES,
    Dots,
    Layer,
    beside,
    broken,
    figure,
    fitted,
    look,
    text_width,
    tooltips,
)
from adafuse.report.experiments import Experiment
from adafuse.workflow.jobs import gate_rows

ALL = "all"
"""Stands for a feature where a value is what all of them gain."""

_CAPTION = (
    "Above: how often the gate's likeliest candidate is a best one, in five bins of the probability"
    " that the gate gives it; dashed: the rule mean_nll. Below: points that the gate adds to the"
    " score, and those lost without a feature. All on rows that it was not fitted on (five folds)."
)


def gates(experiment: Experiment) -> pl.DataFrame:
    """Return the importance of each feature and the calibration of each run's gate.

    `part` is "importance": `value` has the points that are lost on rows held out if the coefficient
    of `name` is 0, or of `ALL`; or "calibration": of `rounds` rounds in which the rule `name` gave
    its choice the probability `chance`, `value` percent have no candidate that was worth more.
    Nothing but a calibration of mean_nll is there of a gate that is the paper's rule.
    """
    rows = []
    for benchmark, run in experiment.decoded:
        on = gate_rows(experiment.config, benchmark, run)
        assert on is not None
        found = read_gate(str(experiment.require(experiment.layout.gate(on, run)))).fitted
        about = {"benchmark": benchmark, **experiment.describe(run), "fitted_on": on}
        whole = {ALL: found.gain[str(found.penalty)]} if found.penalty is not None else {}
        rows += [
            about | {"part": "importance", "name": name, "value": value}
            for name, value in (whole | found.importance).items()
        ]
        rows += [
            {**about, "part": "calibration", "name": rule, "rounds": each.rounds}
            | {"chance": 100 * each.chance, "value": 100 * each.right}
            for rule, bins in found.calibration.items()
            for each in bins
        ]
    if not rows:
        raise UserError(
            f"experiments.{experiment.name}: no choice mattered on any development row; give more"
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def draw_gates(title: str, table: pl.DataFrame) -> alt.VConcatChart:
    """Draw a calibration curve per benchmark and run, and below the importance of each feature."""
    runs = table["run"].unique(maintain_order=True).to_list()
    names = table["benchmark"].unique(maintain_order=True).to_list()
    titles = {name: broken(name, 20).split("\n") for name in names}
    lost = table.filter(part="importance")
    columns, width = fitted(len(names), text_width(lost["name"]))
    curves = table.filter(part="calibration").partition_by("benchmark", maintain_order=True)
    rows = [beside([_curves(group, runs, width, titles) for group in curves], columns)]
    if len(lost):
        turns = enumerate(zip(runs, cycle(COLOURS), cycle(SHAPES)))
        layers = {run: Layer(colour, shape, n) for n, (run, colour, shape) in turns}
        marks = lost.select(
            "benchmark", "value", row="name", scored="run", low=None, high=None, hollow=False
        )
        dots = Dots(marks, layers, "points of score", titles, zero=True)
        rows.append(beside(dots.panels(width, columns), columns))
    return figure(alt.vconcat(*rows), title, _CAPTION, runs)


def _curves(
    table: pl.DataFrame, runs: Sequence[str], width: int, titles: Mapping[str, Sequence[str]]
) -> alt.LayerChart | alt.FacetChart:
    facts = table.select("run", "name", "chance", "value", "rounds")
    scale = alt.Scale(domain=[0, 100])
    ticks = alt.Axis(title="probability of the choice", values=[0, 50, 100])
    x = alt.X("chance:Q", axis=ticks, scale=scale)
    y = alt.Y("value:Q", title="best choices in percent", scale=scale)
    told = partial(look, runs, alt.Legend(symbolOpacity=1))
    base = alt.Chart(alt.InlineData(facts.to_dicts())).encode(
        x=x, y=y, color=alt.Color("run:N", **told(COLOURS)), tooltip=tooltips(facts)
    )
    learned = base.transform_filter("datum.name == 'learned'")
    rule = base.transform_filter("datum.name != 'learned'")
    ends = alt.InlineData([{"chance": 0, "value": 0}, {"chance": 100, "value": 100}])
    layers = (
        alt.Chart(ends).mark_line(color=GREY, strokeWidth=1).encode(x=x, y=y),
        rule.mark_line(strokeDash=[4, 3], strokeWidth=1.2, opacity=0.6),
        learned.mark_line(strokeWidth=1.6),
        learned.mark_point(filled=True, opacity=1).encode(shape=alt.Shape("run:N", **told(SHAPES))),
    )
    title = alt.TitleParams(titles[table["benchmark"][0]], anchor="start", frame="group")
    return alt.layer(*layers, title=title, width=width, height=150)
