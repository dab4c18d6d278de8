"""Options of `adafuse generate` alone."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adafuse.cli.errors import FAILED
from adafuse.cli.options import (
    DECODING,
    MODELS,
    PROMPTS,
    BatchSize,
    MaxNewTokens,
    MethodName,
    MethodOption,
    given,
    number_or_name,
    one_of,
    option,
    with_models,
    with_options,
)
from adafuse.cli.output import followed, json_line, one_line, speed, write
from adafuse.cli.prompts import Prompt, find_prompts
from adafuse.errors import UserError
from adafuse.models.spec import LOADING, ModelSpec
from adafuse.records import Result

if TYPE_CHECKING:
    from adafuse.ensemble import Ensemble

_FUSIONS = ("mean_nll", "mixture", "most_confident")

PromptTexts = Annotated[
    list[str] | None,
    option("A prompt, \\n in it a line break; repeatable. Or pipe one in.", "TEXT", PROMPTS),
]
PromptsFile = Annotated[
    Path | None,
    option('JSON lines {"id": ..., "prompt": ...}; - is standard input.', "FILE", PROMPTS),
]
OutFile = Annotated[Path | None, option("The Parquet file to write.", "FILE", PROMPTS)]
RowsAsJson = Annotated[bool, option("Print a line of JSON per prompt.", "", PROMPTS, "--json")]

Tau = Annotated[float | None, option("Margin threshold; margins are 0 to 1.", "X", DECODING)]
MaxWords = Annotated[int | None, option("M, the most words a round.", "N", DECODING)]
Branching = Annotated[int | None, option("B, alternatives where unsure.", "N", DECODING)]
Fusion = Annotated[
    str | None,
    option(
        "mean_nll, mixture or most_confident.", "NAME", DECODING, autocompletion=one_of(*_FUSIONS)
    ),
]
MaxRounds = Annotated[int | None, option("Rounds; no limit by default.", "N", DECODING)]
Stop = Annotated[
    list[str] | None, option("Cut before it, \\n in it a line break; repeatable.", "TEXT", DECODING)
]
Engine = Annotated[
    str,
    option(
        "tree, or reference to check it.",
        "NAME",
        DECODING,
        autocompletion=one_of("tree", "reference"),
    ),
]
Weights = Annotated[
    list[float] | None,
    option("Weights of the models in the fusion, one each; 1 by default.", "X", MODELS),
]


@dataclass(frozen=True, slots=True)
class Decoding:
    """Models and their weights, a method and its options, and the settings of every method.

    Names are those of `Ensemble.from_pretrained` and `Ensemble.stream`.
    """

    models: Sequence[ModelSpec]
    weights: Sequence[float] | None
    method: str
    options: dict[str, Any]
    settings: dict[str, Any]

    def check(self) -> None:
        """Refuse what can be refused before a model is loaded.

        Raises:
            UserError: an unknown method, an option that it does not have, or a value out of range.
        """
        from adafuse.decoding.limits import Settings
        from adafuse.decoding.options import parse
        from adafuse.methods import resolve
        from adafuse.metrics.selection import SELECTIONS

        if self.method in SELECTIONS:
            raise UserError(
                f"method {self.method!r} chooses between runs of the workflow and decodes nothing"
                " itself; use it in a configuration (config/README.md) or name a method that"
                " decodes"
            )
        resolve(self.method, self.options).check_models(len(self.models))
        parse(Settings, self.settings, "generate")

    def ensemble(self) -> "Ensemble":
        """Load the models."""
        from adafuse.ensemble import Ensemble  # imports torch, which bad input need not wait for

        if sys.stderr.isatty():
            count = len(self.models)
            typer.echo("loading 1 model" if count == 1 else f"loading {count} models", err=True)
        return Ensemble.from_pretrained(self.models, weights=self.weights)

    def stream(self, rows: Sequence[Prompt], *, printed: bool) -> Iterator[tuple[int, Result]]:
        """Decode all prompts and yield each result with its number as soon as it ends.

        Where they are `printed` to a terminal, there is no progress bar between them.
        """
        ensemble = self.ensemble()
        texts = [row.text for row in rows]
        stream = ensemble.stream(texts, method=self.method, **self.options, **self.settings)
        return followed(stream, len(rows), hidden=printed and sys.stdout.isatty())


def in_turn(stream: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Yield results in the order of their numbers, each as soon as it is its turn."""
    waiting: dict[int, Result] = {}
    turn = 0
    for index, result in stream:
        waiting[index] = result
        while turn in waiting:
            yield waiting.pop(turn)
            turn += 1


def to_stdout(decoding: Decoding, rows: Sequence[Prompt]) -> int:
    """Print a line of JSON per prompt; return how many failed."""
    results = in_turn(decoding.stream(rows, printed=True))
    return sum(print_row(row, result) for row, result in zip(rows, results, strict=True))


def live(decoding: Decoding, row: Prompt) -> int:
    """Print the text of one prompt while it is decoded; return whether it failed.

    Nothing else goes to standard output, but for a line break behind the text in a terminal.
    """
    settings = {k: v for k, v in decoding.settings.items() if k != "batch_size"}
    ensemble = decoding.ensemble()
    stream = ensemble.stream_text(row.text, method=decoding.method, **decoding.options, **settings)
    for span in stream:
        write(span)
    result = stream.result
    assert result is not None
    if sys.stdout.isatty() and not result.text.endswith("\n"):
        write("\n")
    if result.error is not None:
        typer.echo(f"error: {one_line(result.error)}", err=True)
    elif sys.stderr.isatty():
        typer.echo(_facts(result), err=True)
    return int(result.stop_reason == "error")


def _facts(result: Result) -> str:
    tokens = max(result.tokens, default=0)
    counts = f"{len(result.rounds)} rounds, {tokens} tokens"
    rate = speed(tokens, result.seconds)
    return f"{counts}, {result.seconds:.1f} s, {rate}; stopped by {result.stop_reason}"


def print_row(row: Prompt, result: Result) -> bool:
    """Print a result as a line of JSON; return whether it failed."""
    typer.echo(json_line(columns(row, result)))
    sys.stdout.flush()
    return result.stop_reason == "error"


def columns(row: Prompt, result: Result) -> dict[str, Any]:
    """Return a result as a row, its prompt first."""
    from adafuse.workflow.traces import result_columns

    return {"id": row.id, "prompt": row.text, **result_columns(result)}


def check_out(out: Path) -> None:
    """Refuse a file that cannot be written, before anything is decoded.

    Raises:
        UserError: another ending than .parquet, a folder, or one in which nothing can be written.
    """
    from adafuse.files import check_writable

    if out.suffix != ".parquet" and not out.is_dir():
        raise UserError(
            f"--out {str(out)!r} does not end in .parquet, the format of what is written; call it"
            f" {str(out.with_suffix('.parquet'))!r}"
        )
    absolute = Path(os.path.abspath(out))
    top = Path(*absolute.parts[:2])
    if absolute != top and not top.exists():  # no place for results, so more likely a slip
        raise UserError(f"--out {str(out)!r}: {str(top)!r} does not exist; check the path")
    check_writable(out)


def to_file(decoding: Decoding, rows: Sequence[Prompt], out: Path, *, as_json: bool) -> int:
    """Write a Parquet file, and lines of JSON, too, if wanted; return how many prompts failed.

    On Ctrl-C or an error in between, the rows that ended are written.
    """
    ended: dict[int, Result] = {}
    replaced = out.exists()
    try:
        stream = _kept(decoding.stream(rows, printed=as_json), ended)
        for row, result in zip(rows, in_turn(stream), strict=True):
            if as_json:
                print_row(row, result)
    finally:
        if ended:
            _write(decoding, rows, ended, out)
        if 0 < len(ended) < len(rows):
            found = f"stopped after {len(ended)} of {len(rows)} prompts; they are in {out}"
            typer.echo(found + ", which was replaced" * replaced, err=True)
    failed = sum(result.stop_reason == "error" for result in ended.values())
    count = "1 prompt" if len(rows) == 1 else f"{len(rows)} prompts"
    place = f"replaced {out}" if replaced else f"written to {out}"
    typer.echo(f"{count} continued, {failed} of them failed; {place}", err=as_json)
    return failed


def _kept(
    stream: Iterator[tuple[int, Result]], ended: dict[int, Result]
) -> Iterator[tuple[int, Result]]:
    for index, result in stream:
        ended[index] = result
        yield index, result


def _write(
    decoding: Decoding, rows: Sequence[Prompt], ended: Mapping[int, Result], out: Path
) -> None:
    import pyarrow as pa

    from adafuse.workflow.provenance import versions
    from adafuse.workflow.traces import RESULT_FIELDS, write_table

    fields = [pa.field("id", pa.string()), pa.field("prompt", pa.string()), *RESULT_FIELDS]
    chosen = {"method": decoding.method, **decoding.options, **decoding.settings}
    models = decoding.models
    loading = {name: [getattr(each, own) for each in models] for name, own in LOADING.items()}
    paths = [each.path for each in models]
    settings = {"models": paths, **loading, **given(weights=decoding.weights), **chosen}
    table = [columns(rows[index], ended[index]) for index in sorted(ended)]
    write_table(out, fields, table, {"settings": settings, "versions": versions()})


@with_models
def generate(
    prompt: PromptTexts = None,
    prompts: PromptsFile = None,
    out: OutFile = None,
    as_json: RowsAsJson = False,
    method: MethodName = "adafuse",
    option: MethodOption = None,
    tau: Tau = None,
    max_words: MaxWords = None,
    branching: Branching = None,
    fusion: Fusion = None,
    max_new_tokens: MaxNewTokens = 256,
    max_rounds: MaxRounds = None,
    stop: Stop = None,
    batch_size: BatchSize = "8",
    engine: Engine = "tree",
    weight: Weights = None,
    *,
    models: list[ModelSpec],
) -> None:
    """Continue prompts with one or more models.

    One prompt alone is printed while it is decoded. Several go to a
    Parquet file, or to standard output with --json: a row per prompt, with
    every round that led to it.
    """
    named = given(tau=tau, max_words=max_words, branching=branching, fusion=fusion)
    settings = given(
        max_new_tokens=max_new_tokens, max_rounds=max_rounds, engine=engine,
        batch_size=number_or_name(batch_size),
        stop=[string.replace("\\n", "\n") for string in stop or []],
    )  # fmt: skip
    options = with_options(named, option or [])
    decoding = Decoding(models, weight, method, options, settings)
    decoding.check()
    rows = find_prompts(prompts, prompt or [])
    _check_output(rows, out, as_json)
    if out is not None:
        failed = to_file(decoding, rows, out, as_json=as_json)
    else:
        failed = to_stdout(decoding, rows) if as_json else live(decoding, rows[0])
    raise typer.Exit(FAILED if failed else 0)


def _check_output(rows: list[Prompt], out: Path | None, as_json: bool) -> None:
    if out is not None:
        check_out(out)
    elif len(rows) > 1 and not as_json:
        raise UserError(f"{len(rows)} prompts go to a file or print as JSON; add --out or --json")
