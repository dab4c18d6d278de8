"""`adafuse generate`: decode prompts from everywhere into a terminal, a pipe or a file."""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict, field_validator

from adafuse.cli.errors import FAILED
from adafuse.cli.options import (
    DECODING,
    MODELS,
    PROMPTS,
    BatchSize,
    MaxNewTokens,
    MethodName,
    Strings,
    given,
    method_options,
    option,
    with_models,
    with_options,
)
from adafuse.cli.output import counted, json_line, one_line, write
from adafuse.errors import UserError
from adafuse.models.spec import LOADING, ModelSpec
from adafuse.options import Identifier, parse

if TYPE_CHECKING:
    from adafuse.ensemble import Ensemble

STANDARD_INPUT = Path("-")
_FORM = '{"id": ..., "prompt": ...}'


class PromptRow(BaseModel):
    """One prompt and the id that its result is found by."""

    model_config = ConfigDict(strict=True, frozen=True)

    id: Identifier
    prompt: str

    @field_validator("prompt")
    @classmethod
    def _is_not_empty(cls, prompt: str) -> str:
        if not prompt.strip():
            raise ValueError("must hold some text")
        return prompt


PromptTexts = Annotated[
    Strings,
    option("A prompt (\\n is a line break); repeatable. Or pipe one in.", "TEXT", PROMPTS),
]
PromptsFile = Annotated[
    Path | None,
    option('JSON lines {"id": ..., "prompt": ...}; - is standard input.', "FILE", PROMPTS),
]
OutFile = Annotated[Path | None, option("The Parquet file to write.", "FILE", PROMPTS)]
RowsAsJson = Annotated[bool, option("Print a line of JSON per prompt.", "", PROMPTS, "--json")]
MethodOption = Annotated[
    Strings,
    option(
        "Any option of the method; repeatable.",
        "NAME=VALUE",
        DECODING,
        autocompletion=method_options,
    ),
]
Tau = Annotated[float | None, option("Margin threshold; margins are 0 to 1.", "X", DECODING)]
MaxWords = Annotated[int | None, option("M, maximum words per proposal.", "N", DECODING)]
Branching = Annotated[int | None, option("B, alternatives where not confident.", "N", DECODING)]
_RULES = ("mean_nll", "mixture", "most_confident", "learned")
Fusion = Annotated[
    str | None,
    option("mean_nll, mixture, most_confident or learned.", "NAME", DECODING, values=_RULES),
]
MaxRounds = Annotated[int | None, option("Maximum rounds; no limit by default.", "N", DECODING)]
Stop = Annotated[
    Strings, option("Stop string (\\n is a line break); repeatable.", "TEXT", DECODING)
]
_ENGINES = ("tree", "reference")
Engine = Annotated[
    str, option("tree, or reference (slow) to check results.", "NAME", DECODING, values=_ENGINES)
]
Weights = Annotated[
    list[float] | None,
    option("Weight in the fusion, one per model; 1 by default.", "X", MODELS),
]


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

    A single prompt is printed while it is decoded. Several are written to a
    Parquet file, or with --json to standard output: one row per prompt, with
    its rounds.
    """
    named = given(tau=tau, max_words=max_words, branching=branching, fusion=fusion)
    options = with_options(named, option or [])
    settings = given(
        max_new_tokens=max_new_tokens,
        max_rounds=max_rounds,
        engine=engine,
        batch_size=batch_size,
        stop=[string.replace("\\n", "\n") for string in stop or []],
    )
    check_decoding(len(models), method, options, settings)
    rows = find_prompts(prompts, prompt or [])
    if out is not None:
        check_out(out)
    elif len(rows) > 1 and not as_json:
        raise UserError(f"{len(rows)} prompts go to a file or print as JSON; add --out or --json")
    ensemble = load(models, weight)
    decoding = {"method": method, **options, **settings}
    if out is None and not as_json:
        failed = print_text(ensemble, rows[0], decoding)
    else:
        loading = {name: [getattr(spec, own) for spec in models] for name, own in LOADING.items()}
        paths = [spec.path for spec in models]
        described = {"models": paths, **loading, **given(weights=weight), **decoding}
        failed = decode_rows(ensemble, rows, decoding, described, out, as_json=as_json)
    raise typer.Exit(FAILED if failed else 0)


def check_decoding(
    models: int, method: str, options: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    from adafuse.decoding.words import Settings
    from adafuse.methods import resolve
    from adafuse.metrics.selection import SELECTIONS

    if method in SELECTIONS:
        raise UserError(
            f"method {method!r} chooses between runs of the workflow and decodes nothing"
            " itself; use it in a configuration (config/README.md) or name a method that"
            " decodes"
        )
    resolve(method, options).check_models(models)
    parse(Settings, settings, "generate")


def check_out(out: Path) -> None:
    """Refuse a file that cannot be written, before anything is decoded."""
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


def load(models: Sequence[ModelSpec], weights: Sequence[float] | None = None) -> "Ensemble":
    from adafuse.workflow.decode import fast_imports

    with fast_imports():  # of torch, for which bad input need not wait
        from adafuse.ensemble import Ensemble

    if sys.stderr.isatty():
        typer.echo(f"loading {counted(len(models), 'model')}", err=True)
    return Ensemble.from_pretrained(models, weights=weights)


def print_text(ensemble: "Ensemble", row: PromptRow, decoding: Mapping[str, Any]) -> int:
    """Print the text of one prompt while it is decoded; return whether it failed.

    Nothing else goes to standard output, but for a line break after the text in a terminal.
    """
    stream = ensemble.stream_text(row.prompt, **decoding)
    for span in stream:
        write(span)
    result = stream.result
    assert result is not None
    if sys.stdout.isatty() and not result.text.endswith("\n"):
        write("\n")
    if result.error is not None:
        typer.echo(f"error: {one_line(result.error)}", err=True)
    elif sys.stderr.isatty():
        tokens = max(result.tokens, default=0)
        counts = f"{len(result.rounds)} rounds, {tokens} tokens, {result.seconds:.1f} s"
        rate = _speed(tokens, result.seconds)
        typer.echo(f"{counts}, {rate}; stopped by {result.stop_reason}", err=True)
    return int(result.stop_reason == "error")


def _speed(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:.1f} tokens/s" if seconds else ""


def decode_rows(
    ensemble: "Ensemble",
    rows: Sequence[PromptRow],
    decoding: Mapping[str, Any],
    described: Mapping[str, Any],
    out: Path | None,
    *,
    as_json: bool,
) -> int:
    """Decode prompts into lines of JSON, in order, or a Parquet file; return how many failed.

    The file says how it was made in the words of `described`. On Ctrl-C or an error in between, the
    rows that ended are written to it.
    """
    from tqdm import tqdm

    from adafuse.traces import result_columns

    ended: dict[int, dict[str, Any]] = {}
    printed = failed = tokens = 0
    replaced, start = out is not None and out.exists(), time.perf_counter()
    hidden = True if as_json and sys.stdout.isatty() else None  # no bar between printed lines
    try:
        with tqdm(total=len(rows), unit="prompt", disable=hidden) as bar:
            for index, result in ensemble.stream([row.prompt for row in rows], **decoding):
                ended[index] = {**rows[index].model_dump(), **result_columns(result)}
                failed += result.stop_reason == "error"
                tokens += max(result.tokens, default=0)
                bar.set_postfix_str(_speed(tokens, time.perf_counter() - start), refresh=False)
                bar.update()
                while as_json and printed in ended:
                    typer.echo(json_line(ended[printed] if out else ended.pop(printed)))
                    sys.stdout.flush()
                    printed += 1
    finally:
        if out is not None and ended:
            _write_trace(out, [ended[index] for index in sorted(ended)], described)
        if out is not None and 0 < len(ended) < len(rows):
            partial = f"stopped after {len(ended)} of {len(rows)} prompts; they are in {out}"
            typer.echo(partial + ", which was replaced" * replaced, err=True)
    if out is not None:
        file = f"replaced {out}" if replaced else f"written to {out}"
        count = counted(len(rows), "prompt")
        typer.echo(f"{count} continued, {failed} of them failed; {file}", err=as_json)
    return failed


def _write_trace(out: Path, rows: Sequence[dict[str, Any]], described: Mapping[str, Any]) -> None:
    import pyarrow as pa

    from adafuse.parquet import write_table
    from adafuse.traces import RESULT_FIELDS
    from adafuse.version import versions

    fields = [pa.field("id", pa.string()), pa.field("prompt", pa.string()), *RESULT_FIELDS]
    write_table(out, fields, rows, {"settings": dict(described), "versions": versions()})


def find_prompts(file: Path | None, texts: Sequence[str]) -> list[PromptRow]:
    """Return the prompts of a file ("-" is standard input), or else `texts`, or else what is piped.

    In `texts`, a backslash and an n are a line break; a piped text is one prompt without the line
    break at its end.
    """
    if file is not None and texts:
        raise UserError("--prompts and --prompt are both given; give one of them")
    if file is not None:
        return read_prompts(file)
    if texts:
        found = [text.replace("\\n", "\n") for text in texts]
    elif sys.stdin.isatty():
        raise UserError("no prompt was given; add --prompt TEXT or --prompts FILE, or pipe one in")
    else:
        text = _read(STANDARD_INPUT, "standard input")
        if not text.strip():
            raise UserError("standard input holds no prompt; pipe one in, or add --prompt TEXT")
        found = [text.removesuffix("\n").removesuffix("\r")]
    return [
        parse(PromptRow, {"id": number, "prompt": text}, "--prompt")
        for number, text in enumerate(found, 1)
    ]


def read_prompts(path: Path) -> list[PromptRow]:
    """Read JSON lines {"id", "prompt"} with different ids; errors name the line."""
    name = "standard input" if path == STANDARD_INPUT else str(path)
    prompts: dict[str, PromptRow] = {}
    for number, line in enumerate(_read(path, name).split("\n"), 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        prompt = parse(PromptRow, _object(line, where), where)
        if prompt.id in prompts:
            raise UserError(
                f"{where}: id {prompt.id!r} occurs twice; give every prompt one of its own"
            )
        prompts[prompt.id] = prompt
    if not prompts:
        raise UserError(f"{name} holds no prompt; write one {_FORM} per line")
    return list(prompts.values())


def _read(path: Path, name: str) -> str:
    if path != STANDARD_INPUT and not path.is_file():
        raise UserError(f"prompts file {name!r} does not exist; check its path")
    try:
        return (sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not UTF-8 text ({error}); save it as UTF-8") from None


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{where}: broken JSON ({error.msg} at column {error.colno}); write {_FORM}"
        ) from None
    except RecursionError:
        raise UserError(f"{where}: JSON that is nested too deeply; write {_FORM}") from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: {line.strip()[:40]!r} is not an object {_FORM}")
    return row
