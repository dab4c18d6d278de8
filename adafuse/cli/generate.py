"""`adafuse generate`: decode prompts from everywhere into a terminal, a pipe or a file."""

import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import AfterValidator, BaseModel, ConfigDict

from adafuse.cli.errors import FAILED
from adafuse.cli.options import (
    DECODING,
    MODELS,
    PROMPTS,
    BatchSize,
    MaxNewTokens,
    MethodName,
    Strings,
    ThreadsOption,
    fusion_rules,
    given,
    method_options,
    number_or_name,
    option,
    with_models,
    with_options,
    with_plugins,
)
from adafuse.cli.output import counted, json_text, write
from adafuse.cli.result_file import ResultFile, check_out
from adafuse.errors import UserError
from adafuse.models.spec import AUTO, WHERE_SET, ModelSpec
from adafuse.options import OTHER_LENGTHS, SAMPLING, Identifier, parse, refusing
from adafuse.records.result import Prompt, as_prompt, as_text
from adafuse.records.views import harmless, one_line
from adafuse.startup import fast_imports
from adafuse.storage.files import read_text, text_of
from adafuse.storage.yaml_files import parse_json

if TYPE_CHECKING:
    from adafuse.ensemble import Ensemble
    from adafuse.storage.journal import Journal

STANDARD_INPUT = Path("-")
_SETTINGS = {"chat_template_kwargs", "max_length", "max_new_tokens", "max_rounds", "stop", "system"}
_SETTINGS |= {*OTHER_LENGTHS, "tools"}
"""Keys that look like settings, which rows of prompts have none of; other keys are left alone."""
_FORM = '{"prompt": ...} or {"messages": [...]}, with an id if you like'


def _prompt(given: Any) -> Prompt:
    with refusing():
        prompt = as_prompt(given, "it")
    if not as_text(prompt).strip():
        raise ValueError("must hold some text")
    return prompt


class PromptRow(BaseModel):
    """One prompt and the id that its result is found by."""

    model_config = ConfigDict(strict=True, frozen=True, arbitrary_types_allowed=True)

    id: Identifier
    prompt: Annotated[Any, AfterValidator(_prompt)]

    @property
    def text(self) -> str:
        """The prompt as results have it."""
        return as_text(self.prompt)


PromptTexts = Annotated[
    Strings,
    option("A prompt (\\n is a line break); repeatable. Or pipe a prompt in.", "TEXT", PROMPTS),
]
PromptsFile = Annotated[
    Path | None,
    option('JSON lines {"prompt": ...}, or .txt with one per line; - for a pipe.', "FILE", PROMPTS),
]
OutFile = Annotated[Path | None, option("The Parquet file to write.", "FILE", PROMPTS)]
Resume = Annotated[
    bool, option("Continue the same command after an interruption.", "", PROMPTS, "--resume")
]
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
Tau = Annotated[
    float | None,
    option("Margin threshold, 0 to 1; above 1 no margin reaches it; default 0.7.", "X", DECODING),
]
MaxWords = Annotated[
    Any,
    option(
        "M, maximum words per proposal, or adaptive: up to the end of the sentence; default 3.",
        "N",
        DECODING,
        values=["adaptive"],
        parser=number_or_name,
    ),
]
Branching = Annotated[
    int | None, option("B, alternatives if not confident; default 1.", "N", DECODING)
]
Fusion = Annotated[
    str | None,
    option(
        "Fusion rule, default mean_nll; see `adafuse methods adafuse`.",
        "NAME",
        DECODING,
        autocompletion=fusion_rules,
    ),
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


@with_plugins
@with_models
def generate(
    prompt: PromptTexts = None,
    prompts: PromptsFile = None,
    out: OutFile = None,
    resume: Resume = False,
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
    threads: ThreadsOption = "auto",
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
    check_variables_read(models, rows)
    check_places(models, method, options)
    decoding = {"method": method, **options, **settings}
    file = None
    if out is not None:
        check_out(out, prompts)
        prompts_by_id = {row.id: row.prompt for row in rows}
        file = ResultFile.of(out, models, weight, decoding, prompts_by_id, resume=resume)
    elif resume:
        raise UserError("--resume continues a file; name it with --out")
    elif len(rows) > 1 and not as_json and not prompt:
        raise UserError(f"{len(rows)} prompts need a file or JSON as output; add --out or --json")
    with load(models, weight, threads) as ensemble:
        if file is None and not as_json and len(rows) == 1:
            raise typer.Exit(FAILED if print_text(ensemble, rows[0], decoding) else 0)
        if file is None:
            done = decode_rows(ensemble, rows, decoding, None, json_text if as_json else readable)
        else:
            done = decode_to_file(ensemble, rows, decoding, file, as_json=as_json)
    raise typer.Exit(FAILED if _failed(done) else 0)


def check_variables_read(models: Sequence[ModelSpec], rows: Sequence[PromptRow] = ()) -> None:
    """Refuse settings of chat templates that no prompt is put into."""
    texts = all(isinstance(row.prompt, str) for row in rows)
    for model, name in product(models, (*WHERE_SET, "chat_date")):
        value, default = getattr(model, name), ModelSpec.model_fields[name].default
        if texts and model.chat is False and value != default:
            raise UserError(
                f"--{name.replace('_', '-')} {value} changes nothing, because all prompts are"
                f" texts; add --chat or --chat-for {model.path}, or give messages"
            )


def check_places(models: Sequence[ModelSpec], method: str, options: Mapping[str, Any]) -> None:
    """Refuse where and how to load, if nothing is loaded: neither a model nor one of the method."""
    from adafuse.methods import resolve

    if all(model.server for model in models) and not resolve(method, options).checkpoints:
        for model, name in product(models, ("device", "dtype")):
            if (value := getattr(model, name)) != AUTO:
                raise UserError(
                    f"--{name} {value} changes nothing, because all models are on servers; leave it"
                    " out"
                )


def decode_to_file(
    ensemble: "Ensemble",
    rows: Sequence[PromptRow],
    decoding: Mapping[str, Any],
    file: ResultFile,
    *,
    as_json: bool,
) -> list[dict[str, Any]]:
    """Decode what the journal of a file lacks, write the file and say so; return its rows."""
    with file.journal as journal:
        file.check(ensemble.served_by)
        done = decode_rows(ensemble, rows, decoding, journal, json_text if as_json else None)
        written = "replaced" if file.out.exists() else "written to"
        file.write(done)
    failed = _failed(done)
    again = ", which --resume tries again" * bool(failed)
    count = f"{counted(len(rows), 'prompt')} continued, {failed} of them failed{again}"
    typer.echo(f"{count}; {written} {file.out}", err=as_json)
    return done


def _failed(rows: Sequence[Mapping[str, Any]]) -> int:
    return sum(row["stop_reason"] == "error" for row in rows)


def check_decoding(
    models: int, method: str, options: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    from adafuse.decoding.words import Settings
    from adafuse.methods import resolve
    from adafuse.methods.selections import SELECTIONS

    if method in SELECTIONS:
        raise UserError(
            f"method {method!r} chooses between runs of the workflow and decodes nothing"
            " itself; use it in a configuration (config/README.md) or name a method that"
            " decodes"
        )
    resolve(method, options).check_models(models)
    parse(Settings, settings, "generate")


def load(
    models: Sequence[ModelSpec],
    weights: Sequence[float] | None = None,
    threads: int | Literal["auto"] = "auto",
) -> "Ensemble":
    with fast_imports():  # of torch, for which bad input need not wait
        from adafuse.ensemble import Ensemble

    if sys.stderr.isatty():
        typer.echo(f"loading {counted(len(models), 'model')}", err=True)
    return Ensemble.from_pretrained(models, weights=weights, threads=threads)


def print_text(ensemble: "Ensemble", row: PromptRow, decoding: Mapping[str, Any]) -> int:
    """Print the text of one prompt while it is decoded; return whether it failed.

    Nothing else goes to standard output, but for a line break after the text in a terminal.
    """
    stream, last = ensemble.stream_text(row.prompt, **decoding), "\n"
    try:
        for span in stream:
            write(span)
            last = span[-1:] or last
    finally:
        if sys.stdout.isatty() and last != "\n":
            write("\n")  # also before the sentence of what ended it early
    result = stream.result
    assert result is not None
    if result.error is not None:
        typer.echo(f"error: {one_line(result.error)}", err=True)
    elif sys.stderr.isatty():
        tokens = max(result.tokens, default=0)
        counts = f"{len(result.rounds)} rounds, {tokens} tokens, {result.seconds:.1f} s"
        rate = _speed(tokens, result.seconds)
        typer.echo(f"{counts}, {rate}; stop reason: {result.stop_reason}", err=True)
    return int(result.stop_reason == "error")


def _speed(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:.1f} tokens/s" if seconds else ""


def readable(row: Mapping[str, Any]) -> str:
    """Return a result as its prompt in a line, and its text."""
    text = row["text"].strip("\n") if row["error"] is None else f"error: {one_line(row['error'])}"
    text = harmless(text) if sys.stdout.isatty() else text
    return f"{row['id']}: {one_line(row['prompt'])}\n{text}\n"


def decode_rows(
    ensemble: "Ensemble",
    rows: Sequence[PromptRow],
    decoding: Mapping[str, Any],
    journal: "Journal | None",
    printed: Callable[[dict[str, Any]], str] | None,
) -> list[dict[str, Any]]:
    """Decode prompts and return their rows; what is `printed` of each has the prompts' order.

    Rows go to the `journal` as they end, and stay there whatever happens; those that it has are not
    decoded again, but for failed ones.
    """
    from tqdm import tqdm

    from adafuse.storage.traces import prompt_row

    known = {} if journal is None else journal.rows
    done = {k: {**row, "id": k} for k, row in known.items() if row["stop_reason"] != "error"}
    if done:
        typer.echo(f"{len(done)} of {counted(len(rows), 'prompt')} were done before", err=True)
    left = [row for row in rows if row.id not in done]
    unprinted, tokens, start = list(rows), 0, time.perf_counter()
    hidden = True if printed and sys.stdout.isatty() else None  # no bar between printed lines

    def print_done() -> None:
        while printed and unprinted and unprinted[0].id in done:
            typer.echo(printed(done[unprinted.pop(0).id]))
            sys.stdout.flush()

    print_done()
    try:
        with tqdm(total=len(rows), initial=len(done), unit="prompt", disable=hidden) as bar:
            for index, result in ensemble.stream([row.prompt for row in left], **decoding):
                row = left[index]
                done[row.id] = prompt_row(row.id, row.prompt, result)
                if journal is not None:
                    journal.append(row.id, done[row.id])
                tokens += max(result.tokens, default=0)
                bar.set_postfix_str(_speed(tokens, time.perf_counter() - start), refresh=False)
                bar.update()
                print_done()
    finally:
        if journal is not None and 0 < len(done) < len(rows):
            partial = f"stopped after {len(done)} of {len(rows)} prompts"
            typer.echo(f"{partial}; the same command with --resume continues", err=True)
    return [done[row.id] for row in rows]


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
        found = [text.removesuffix("\n")]
    return [
        parse(PromptRow, {"id": number, "prompt": text}, "--prompt")
        for number, text in enumerate(found, 1)
    ]


def read_prompts(path: Path) -> list[PromptRow]:
    """Read JSON lines with different ids, or a text with a prompt a line; errors name the line.

    Without an id, the number of the line is one. In a text, a backslash and an n are a line break.
    """
    name = "standard input" if path == STANDARD_INPUT else str(path)
    prompts: dict[str, PromptRow] = {}
    text = _read(path, name)
    is_text = path.name.lower().removesuffix(".gz").endswith(".txt")
    if is_text:
        _check_lines(name, text)
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        row = {"prompt": line.replace("\\n", "\n")} if is_text else _object(line, where)
        if {"question", "answer"} <= row.keys() and not {"messages", "prompt"} & row.keys():
            raise UserError(
                f"{where} has a question and an answer, as rows of a benchmark have: name the file"
                " as `source: {file: FILE}` of one (docs/benchmarks.md), or give each row a prompt"
            )
        if {"messages", "prompt"} <= row.keys():
            raise UserError(f"{where} has a prompt and messages; give one of them")
        if settings := sorted(_SETTINGS & row.keys()):
            raise UserError(
                f"{where} has {settings[0]!r}, which is set for all prompts; use the options of the"
                " command, and for a system text the first of the messages"
            )
        for key in sorted(SAMPLING.keys() & row.keys() - {"n"}):  # n may be a number of anything
            if row[key] not in (None, *SAMPLING[key]):
                raise UserError(
                    f"{where} has {key!r} {row[key]!r:.40}, but decoding is greedy; remove it"
                )
        if isinstance(row.get("messages"), str):
            raise UserError(f"{where}: messages is a text; give a list of messages, or a prompt")
        if "messages" in row:
            row["prompt"] = row.pop("messages")
        prompt = parse(PromptRow, {"id": number, **row}, where)
        if prompt.id in prompts:
            raise UserError(
                f"{where}: id {prompt.id!r} occurs twice; give every prompt one of its own"
            )
        prompts[prompt.id] = prompt
    if not prompts:
        raise UserError(f"{name} holds no prompt; write one a line: {_FORM}")
    return list(prompts.values())


_EXAMPLE = re.compile(r"^(?:question|q):.*\n(?!(?:question|q):)\S", re.I | re.M)
"""A question whose example goes on in the next line."""


def _check_lines(name: str, text: str) -> None:
    """Refuse a text of few-shot examples, and warn of one in paragraphs: each line is a prompt."""
    if example := _EXAMPLE.search(text):
        line = text.count("\n", 0, example.start()) + 1
        raise UserError(
            f"{name}, line {line}, begins what looks like a few-shot example of several lines, but"
            " each line of a .txt is a prompt of its own; name the file as `shots: {file: FILE}` of"
            " a benchmark (docs/benchmarks.md#prompts), or write each prompt on one line with \\n"
        )
    if "\\n" not in text and re.search(r"\S\s*\n\s*\n\s*\S", text):
        typer.echo(
            f"warning: {name} has empty lines: each other line is continued as a prompt of its own"
            " (\\n in a line is a line break)",
            err=True,
        )


def _read(path: Path, name: str) -> str:
    if path != STANDARD_INPUT and not path.exists():
        raise UserError(f"prompts file {name!r} does not exist; check its path")
    if path == STANDARD_INPUT:
        return text_of(sys.stdin.buffer.read(), name)
    return read_text(path, "prompts file")


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{where}: broken JSON ({error.msg} at column {error.colno}); write {_FORM}"
        ) from None
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: {line.strip()[:40]!r} is not an object {_FORM}")
    return row
