"""`adafuse fit`: what is learned from development rows, a gate or a certificate."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adafuse.benchmarks.prompts import SLOT, question_key, unfilled
from adafuse.cli.generate import (
    MethodOption,
    Stop,
    check_decoding,
    check_places,
    check_variables_read,
    load,
)
from adafuse.cli.options import (
    BatchSize,
    FieldNames,
    MaxNewTokens,
    MethodName,
    ThreadsOption,
    fields_of,
    option,
    scorer_names,
    with_models,
    with_options,
    with_plugins,
)
from adafuse.cli.output import counted, json_text
from adafuse.cli.result_file import Asked, check_journal
from adafuse.errors import UserError
from adafuse.models.spec import ModelSpec

if TYPE_CHECKING:
    from adafuse.benchmarks.rows import Fields
    from adafuse.development.gate_fitting import Development, Kept
    from adafuse.ensemble import Ensemble

ROWS, CERTIFY = "Development rows", "Certificate"
_OBJECTIVES = ("reward", "likelihood")

Rows = Annotated[
    Path, option('JSON lines, CSV or Parquet: {"question", "answer"}; not test rows.', "FILE", ROWS)
]
ScorerName = Annotated[
    str,
    option("Scorer of the answers: nq, gsm8k, ...", "NAME", ROWS, autocompletion=scorer_names),
]
Template = Annotated[
    str, option(f"The prompt, with {SLOT} in it (\\n is a line break).", "TEXT", ROWS)
]
Margin = Annotated[
    float | None,
    option("Points below the best model that do not matter; by default 1.", "POINTS", CERTIFY),
]
Alpha = Annotated[
    float | None,
    option("The chance of a wrong certificate; by default 0.05.", "SHARE", CERTIFY),
]
Objective = Annotated[
    str | None,
    option(
        "reward (tries all alternatives; the default) or likelihood (follows the reference"
        " answers).",
        "NAME",
        ROWS,
        values=_OBJECTIVES,
    ),
]


@with_plugins
@with_models
def fit(
    rows: Rows,
    scorer: ScorerName,
    out: Annotated[Path, option("The gate or certificate to write (JSON).", "FILE", ROWS)],
    template: Template = SLOT,
    field: FieldNames = None,
    objective: Objective = None,
    certify: Annotated[
        bool,
        option("Test whether the method is as good as the best model, instead.", "", CERTIFY),
    ] = False,
    margin: Margin = None,
    alpha: Alpha = None,
    method: MethodName = "adafuse",
    option: MethodOption = None,
    max_new_tokens: MaxNewTokens = 256,
    stop: Stop = None,
    batch_size: BatchSize = "8",
    threads: ThreadsOption = "auto",
    *,
    models: list[ModelSpec],
) -> None:
    """Learn from development rows how to weight the models in each round.

    The output is a gate. To use it, add --option fusion=learned and
    --option gate=FILE to `adafuse generate`, or both to a run's options.

    With --certify, the output is a certificate that the method, with its
    options, scores less than --margin points below the best of the models. If
    it does score less, a certificate is written with a chance of at most
    --alpha. Use rows that were used for nothing else.

    After an interruption, the same command goes on with what is decoded.
    """
    from adafuse.metrics.compare import MARGIN
    from adafuse.metrics.noninferior import LEVEL
    from adafuse.storage.files import check_writable

    _check_mode(certify, {"objective": objective}, {"margin": margin, "alpha": alpha})
    options = with_options({}, option or [])
    check_decoding(len(models), method, options, {})
    check_variables_read(models)
    check_places(models, method, options)
    settings = max_new_tokens, stop, batch_size
    development = read_development(rows, fields_of(field), template, scorer, *settings)
    check_writable(out, rows)
    decoding = {"method": method, **options, **development.settings}
    kept = _kept(out, rows, Asked.of(models, None, decoding))
    with load(models, threads=threads) as ensemble, _until_written(kept):
        if certify:
            limits = margin or MARGIN, alpha or LEVEL
            _certify(ensemble, development, method, options, out, kept, *limits)
        else:
            _fit_gate(ensemble, development, method, options, out, kept, objective or "reward")


def _check_mode(certify: bool, fits: Mapping[str, Any], certifies: Mapping[str, Any]) -> None:
    """Refuse options that change nothing, and values that are none."""
    for name, value in (fits if certify else certifies).items():
        if value is not None:
            where = "with --certify" if certify else "without --certify"
            raise UserError(f"--{name} {value} changes nothing {where}; remove it")
    for name, most in (("margin", 100), ("alpha", 1)):
        value = certifies[name]
        if value is not None and not 0 < value < most:
            raise UserError(f"--{name} {value:g} is not above 0 and below {most}")


def _kept(out: Path, rows: Path, asked: Asked) -> "Kept":
    """Return where finished texts stay until `out` is written: in a file beside it."""
    from adafuse.development.gate_fitting import Kept
    from adafuse.storage.files import check_writable

    file = out.with_name(f"{out.name}.journal")
    check_writable(file, rows)
    check_journal(file)
    return Kept(file, asked.same)


@contextmanager
def _until_written(kept: "Kept") -> Iterator[None]:
    """Delete what was kept once the file is written; say so if it was not."""
    try:
        yield
        kept.file.unlink(missing_ok=True)
    finally:
        if kept.file.exists():
            typer.echo("stopped; the same command goes on with what is decoded", err=True)


def _certify(
    ensemble: "Ensemble",
    rows: "Development",
    method: str,
    options: Mapping[str, Any],
    out: Path,
    kept: "Kept",
    margin: float,
    alpha: float,
) -> None:
    from adafuse.development.certification import certify_methods
    from adafuse.storage.files import write_text

    candidates = {method: (method, options)}
    found, failed = certify_methods(
        ensemble, rows, candidates, alpha=alpha, margin=margin, kept=kept
    )
    record = {**asdict(found), "exact": found.exact, "sentence": found.sentence}
    record |= {"options": options, "rows": rows.name, "scorer": rows.scorer}
    write_text(out, json_text(record, indent=2) + "\n")
    for said in failed:
        typer.echo(f"warning: {said}", err=True)
    typer.echo(found.sentence)


def _fit_gate(
    ensemble: "Ensemble",
    rows: "Development",
    method: str,
    options: Mapping[str, Any],
    out: Path,
    kept: "Kept",
    objective: str,
) -> None:
    from adafuse.development.gate_file import write_gate
    from adafuse.development.gate_fitting import fit as fitted

    kind: Any = objective  # checked there
    gate = fitted(ensemble, [rows], method=method, objective=kind, kept=kept, **options)
    write_gate(out, gate)
    about = f"{counted(gate.fitted.rounds, 'round')} of {counted(gate.fitted.rows, 'row')}"
    if gate.fitted.penalty is None:
        typer.echo(
            f"{about}: nothing that is learned here helps rows that were held out; {out} is the"
            " rule mean_nll"
        )
        return
    gain = gate.fitted.gain[str(gate.fitted.penalty)]
    said = f"{gain:+.2f} {gate.fitted.unit} on rows that were held out"
    typer.echo(f"{about}: {said}; written to {out}")


def read_development(
    rows: Path,
    fields: "Fields",
    template: str,
    scorer: str,
    max_new_tokens: int,
    stop: Sequence[str] | None,
    batch_size: Any,
) -> "Development":
    """Read the prompts and the answers of development rows."""
    from adafuse.benchmarks.rows import joined, read_rows
    from adafuse.metrics.registry import scorer_named

    if SLOT not in template:
        raise UserError(f"--template {template!r} has no {SLOT}; add it where the question goes")
    if message := unfilled("--template", template):
        typer.echo(f"warning: {message}", err=True)
    chosen = scorer_named(scorer, "--scorer")
    examples, text = read_rows(rows, fields=fields), template.replace("\\n", "\n")
    for row in examples:
        chosen.check_answers(f"row {row.id!r} of {rows}", row.answers)
    accepted = {row.id: row.answers for row in examples}
    for message in filter(None, [f(accepted, str(rows)) for f in (chosen.hopeless, joined)]):
        typer.echo(f"warning: {message}", err=True)
    if copies := len(examples) - len({question_key(row.question) for row in examples}):
        typer.echo(
            f"warning: {rows}: {copies} of {len(examples)} rows have the question of an earlier"
            " one, but intervals, tests and held-out gains take rows for independent; remove them",
            err=True,
        )
    settings = {
        "max_new_tokens": max_new_tokens,
        "stop": [string.replace("\\n", "\n") for string in stop or []],
        "batch_size": batch_size,
    }
    prompts = [text.replace(SLOT, row.question) for row in examples]
    from adafuse.development.gate_fitting import (
        Development,  # imports torch, for which bad input need not wait
    )

    answers, ids = [row.answers for row in examples], [row.id for row in examples]
    questions = [row.question for row in examples]
    asked = prompts, answers, scorer, settings, ids, questions
    return Development(rows.stem, *asked, progress=sys.stderr.isatty())
