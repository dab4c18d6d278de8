"""`adafuse advise`: whether models are worth fusing, by what they write for development rows."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from adafuse.cli.fit import SLOT, Rows, ScorerName, Template, read_development
from adafuse.cli.generate import MethodOption, Stop, Weights, check_decoding, load
from adafuse.cli.options import (
    AsJson,
    BatchSize,
    MaxNewTokens,
    MethodName,
    ThreadsOption,
    with_models,
    with_options,
    with_plugins,
)
from adafuse.cli.output import counted, echo_json
from adafuse.errors import UserError
from adafuse.models.spec import ModelSpec
from adafuse.records.views import one_line

if TYPE_CHECKING:
    from adafuse.development.advice import Advice


_SHOWN = 100  # characters of a prompt's end and of an answer's beginning


@with_plugins
@with_models
def advise(
    rows: Rows,
    scorer: ScorerName,
    template: Template = SLOT,
    method: MethodName = "adafuse",
    option: MethodOption = None,
    max_new_tokens: MaxNewTokens = 256,
    stop: Stop = None,
    batch_size: BatchSize = "8",
    threads: ThreadsOption = "auto",
    weight: Weights = None,
    as_json: AsJson = False,
    *,
    models: list[ModelSpec],
) -> None:
    """Measure on development rows whether models are worth fusing.

    Decodes the rows with each model and with the ensemble. Shows how often one
    model is right when the others are wrong, how often the models agree, and
    the gain of the ensemble.
    """
    options = with_options({}, option or [])
    check_decoding(len(models), method, options, {})
    if len(models) < 2:
        raise UserError("only one model was given, so there is nothing to fuse; name two or more")
    development = read_development(rows, template, scorer, max_new_tokens, stop, batch_size)
    ensemble = load(models, weight, threads)
    from adafuse.development.advice import advise as advised

    advice = advised(ensemble, development, method=method, **options)
    if as_json:
        echo_json(advice)
    else:
        _print(advice, method)


def _print(advice: "Advice", method: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    grid = Table("", advice.metric, "95 % interval", "alone best", "cut", "seconds a row")
    for member in advice.members:
        score = member.score
        shares = f"{member.alone:.0f} %", f"{member.cut:.0f} %"
        name, seconds = one_line(Path(member.name).name), f"{member.seconds:.2f}"
        grid.add_row(name, f"{score.value:.1f}", score.ends(), *shares, seconds)
    scores = f"{advice.fused.value:.1f}", advice.fused.ends(), "", f"{advice.cut:.0f} %"
    grid.add_row(method, *scores, f"{advice.seconds:.2f}")
    console.print(grid)
    names = [*(Path(member.name).name for member in advice.members), method]
    for sample in advice.samples:
        typer.echo(f"prompt: ...{one_line(sample.prompt[-_SHOWN:])}")
        for name, text in (("accepted", sample.gold), *zip(names, sample.texts, strict=True)):
            typer.echo(f"  {one_line(name)}: {one_line(text[:_SHOWN])}")
    typer.echo(f"the better answer of each row: {advice.ceiling:.1f}")
    if (rows := advice.co_failure) is not None:
        ends = f"{rows.beta_low:.1f} to {rows.beta_high:.1f}"
        typer.echo(
            f"all models wrong: {rows.beta:.1f} % of the rows ({ends}), so that no choice between"
            f" their answers passes {rows.bound:.1f}; fused, {rows.gained} of these"
            f" {rows.all_wrong} are right, and {rows.lost} of {rows.all_right} wrong that all"
            " models have right"
        )
    agreement = (
        "" if advice.agreement is None else f"agreement {advice.agreement:.0f} % of rounds; "
    )
    costs = f"{agreement}{advice.forwards:.2f} forward passes per token of all models"
    typer.echo(f"{counted(advice.rows, 'row')}; {costs}")
    typer.echo(advice.verdict)
