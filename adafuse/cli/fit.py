"""`adafuse fit`: learn from development rows how the models' scores are fused."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adafuse.cli.generate import MethodOption, Stop, check_decoding, load
from adafuse.cli.options import (
    BatchSize,
    MaxNewTokens,
    MethodName,
    ThreadsOption,
    option,
    scorer_names,
    with_models,
    with_options,
    with_plugins,
)
from adafuse.cli.output import counted
from adafuse.errors import UserError
from adafuse.models.spec import ModelSpec

if TYPE_CHECKING:
    from adafuse.development.gate_fitting import Development

ROWS = "Development rows"
SLOT = "{question}"
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
Objective = Annotated[
    str,
    option(
        "reward (tries all alternatives) or likelihood (follows the reference answers).",
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
    out: Annotated[Path, option("The gate to write (JSON).", "FILE", ROWS)],
    template: Template = SLOT,
    objective: Objective = "reward",
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
    """
    from adafuse.storage.files import check_writable

    options = with_options({}, option or [])
    check_decoding(len(models), method, options, {})
    development = read_development(rows, template, scorer, max_new_tokens, stop, batch_size)
    check_writable(out)
    ensemble = load(models, threads=threads)

    from adafuse.development.gate_file import write_gate
    from adafuse.development.gate_fitting import fit as fitted

    kind: Any = objective  # checked there
    gate = fitted(ensemble, [development], method=method, objective=kind, **options)
    write_gate(out, gate)
    about = f"{counted(gate.fitted.rounds, 'round')} of {counted(gate.fitted.rows, 'row')}"
    if gate.fitted.penalty is None:
        typer.echo(
            f"{about}: nothing that is learned here helps rows that were held out; {out} is the"
            " rule mean_nll"
        )
        return
    gain = gate.fitted.gain[str(gate.fitted.penalty)]
    typer.echo(f"{about}: {gain:+.2f} points on rows that were held out; written to {out}")


def read_development(
    rows: Path,
    template: str,
    scorer: str,
    max_new_tokens: int,
    stop: Sequence[str] | None,
    batch_size: Any,
) -> "Development":
    """Read the prompts and the answers of development rows."""
    from adafuse.benchmarks.rows import read_rows
    from adafuse.metrics.registry import scorer_named

    if SLOT not in template:
        raise UserError(f"--template {template!r} has no {SLOT}; add it where the question goes")
    chosen = scorer_named(scorer, "--scorer")
    examples, text = read_rows(rows), template.replace("\\n", "\n")
    for row in examples:
        chosen.check_answers(f"row {row.id!r} of {rows}", row.answers)
    if message := chosen.hopeless({row.id: row.answers for row in examples}, str(rows)):
        typer.echo(f"warning: {message}", err=True)
    settings = {
        "max_new_tokens": max_new_tokens,
        "stop": [string.replace("\\n", "\n") for string in stop or []],
        "batch_size": batch_size,
    }
    prompts = [text.replace(SLOT, row.question) for row in examples]
    from adafuse.development.gate_fitting import (
        Development,  # imports torch, for which bad input need not wait
    )

    return Development(rows.stem, prompts, [row.answers for row in examples], scorer, settings)
