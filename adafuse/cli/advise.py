"""`adafuse advise`: whether models are worth fusing, by what they write for development rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adafuse.benchmarks.prompts import SLOT
from adafuse.cli.fit import Rows, ScorerName, Template, read_development
from adafuse.cli.generate import (
    MethodOption,
    Stop,
    Weights,
    check_decoding,
    check_places,
    check_variables_read,
    load,
)
from adafuse.cli.options import (
    AsJson,
    BatchSize,
    FieldNames,
    MaxNewTokens,
    MethodName,
    ThreadsOption,
    fields_of,
    with_models,
    with_options,
    with_plugins,
)
from adafuse.cli.options import option as option_of
from adafuse.cli.output import counted, echo_json
from adafuse.errors import UserError
from adafuse.models.spec import ModelSpec
from adafuse.records.views import one_line
from adafuse.storage.files import check_writable, write_text

if TYPE_CHECKING:
    from adafuse.development.advice import Advice, Answered


_SHOWN = 100  # characters of a prompt's end and of an answer's beginning


@with_plugins
@with_models
def advise(
    rows: Rows,
    scorer: ScorerName,
    template: Template = SLOT,
    field: FieldNames = None,
    method: MethodName = "adafuse",
    option: MethodOption = None,
    max_new_tokens: MaxNewTokens = 256,
    stop: Stop = None,
    batch_size: BatchSize = "8",
    threads: ThreadsOption = "auto",
    weight: Weights = None,
    answers: Annotated[
        Path | None, option_of("Keep all rows with all answers, as JSON lines.", "FILE")
    ] = None,
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
    if answers is not None:
        check_writable(answers, rows)
    check_decoding(len(models), method, options, {})
    check_variables_read(models)
    check_places(models, method, options)
    if len(models) < 2:
        raise UserError("only one model was given, so there is nothing to fuse; name two or more")
    settings = max_new_tokens, stop, batch_size
    development = read_development(rows, fields_of(field), template, scorer, *settings)
    with load(models, weight, threads) as ensemble:
        from adafuse.development.advice import advise as advised

        advice = advised(ensemble, development, method=method, **options)
    if answers is not None:
        names = [*(member.name for member in advice.members), method]
        write_text(answers, "".join(f"{_line(row, names)}\n" for row in advice.answers))
    if as_json:
        echo_json(replace(advice, answers=()))
    else:
        _print(advice, method)


def _print(advice: "Advice", method: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, emoji=False)
    grid = Table("", advice.metric, "95 % interval", "alone best", "end with", "seconds")
    for member in advice.members:
        score, alone = member.score, f"{member.alone:.0f} %"
        name, cost = one_line(Path(member.name).name), f"{member.seconds:.2f}"
        grid.add_row(name, f"{score.value:.1f}", score.ends(), alone, _ends(member.ends), cost)
    scores = f"{advice.fused.value:.1f}", advice.fused.ends(), ""
    grid.add_row(method, *scores, _ends(advice.ends), f"{advice.seconds:.2f}")
    console.print(grid)
    names = [*(Path(member.name).name for member in advice.members), method]
    for sample in advice.samples:
        cut = "..." * (len(sample.prompt) > _SHOWN)
        typer.echo(f"prompt: {cut}{one_line(sample.prompt[-_SHOWN:])}")
        accepted = " | ".join(sample.accepted)
        texts = zip(["accepted", *names], [accepted, *sample.texts], strict=True)
        for name, text in texts:
            cut = "..." * (len(text) > _SHOWN)
            typer.echo(f"  {one_line(name)}: {one_line(text[:_SHOWN])}{cut}")
    typer.echo(f"the better answer of each row: {advice.ceiling:.1f}")
    if (rows := advice.co_failure) is not None:
        ends = f"{rows.beta_low:.1f} to {rows.beta_high:.1f}"
        typer.echo(
            f"all models wrong: {rows.beta:.1f} % of the rows ({ends}), so that no choice between"
            f" their answers passes {rows.bound:.1f}; fused, {rows.gained} of these"
            f" {rows.all_wrong} are right, and {rows.lost} of {rows.all_right} wrong that all"
            " models have right"
        )
    facts = [counted(advice.rows, "row")]
    if advice.agreement is not None:
        facts.append(f"agreement {advice.agreement:.0f} % of rounds")
    if advice.forwards is not None:
        facts.append(f"{advice.forwards:.2f} forward passes per token of all models")
    typer.echo("; ".join(facts))
    every, one = advice.times
    best = Path(advice.members[advice.best].name).name
    typer.echo(
        f"fused, a row takes {every:.1f} times as long as with the models one after the other, and"
        f" {one:.1f} times as long as with {one_line(best)} alone"
    )
    typer.echo(advice.verdict)


_WORDS = {"eos": "end token", "length": "limit"}


def _ends(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{_WORDS.get(end, end)} {share:.0f} %" for end, share in shares.items())


def _line(row: "Answered", names: Sequence[str]) -> str:
    """Return a row of the answers' file: each run's text, stop reason and score."""
    of_runs = zip(row.texts, row.stop_reasons, row.values, strict=True)
    runs = [
        {"run": name, "text": text, "stop_reason": reason, "value": value}
        for name, (text, reason, value) in zip(names, of_runs, strict=True)
    ]
    asked = {"id": row.id, "prompt": row.prompt, "accepted": row.accepted}
    return json.dumps(asked | {"runs": runs}, ensure_ascii=False)
