"""`adafuse generate`: continue prompts with one or more models."""

from pathlib import Path

import typer

from adafuse.cli.errors import FAILED
from adafuse.cli.generate_options import (
    Branching,
    Engine,
    Fusion,
    MaxRounds,
    MaxWords,
    OutFile,
    PromptsFile,
    PromptTexts,
    RowsAsJson,
    Stop,
    Tau,
    Weights,
)
from adafuse.cli.options import (
    BatchSize,
    Chat,
    Device,
    Dtype,
    MaxNewTokens,
    MethodName,
    MethodOption,
    Models,
    Pickled,
    Quantization,
    Revisions,
    Trusted,
    given,
    loading,
)
from adafuse.cli.prompts import Prompt, find_prompts
from adafuse.errors import UserError


def generate(
    model: Models,
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
    chat: Chat = False,
    device: Device = None,
    dtype: Dtype = "auto",
    quantization: Quantization = None,
    revision: Revisions = None,
    trust_remote_code: Trusted = None,
    allow_pickle: Pickled = None,
) -> None:
    """Continue prompts with one or more models.

    One prompt alone is printed while it is decoded. Several go to a
    Parquet file, or to standard output with --json: a row per prompt, with
    every round that led to it.
    """
    from adafuse.cli.decoding import Decoding, live, to_stdout
    from adafuse.cli.method_options import number_or_name, with_options
    from adafuse.cli.result_file import to_file

    named = given(tau=tau, max_words=max_words, branching=branching, fusion=fusion)
    settings = given(
        max_new_tokens=max_new_tokens, max_rounds=max_rounds, engine=engine,
        batch_size=number_or_name(batch_size),
        stop=[string.replace("\\n", "\n") for string in stop or []],
    )  # fmt: skip
    loaded = loading(
        model, weights=weight, revision=revision, device=device, dtype=dtype, chat=chat,
        quantization=quantization, trust_remote_code=trust_remote_code, allow_pickle=allow_pickle,
    )  # fmt: skip
    decoding = Decoding(model, loaded, method, with_options(named, option or []), settings)
    decoding.check()
    rows = find_prompts(prompts, prompt or [])
    _check_output(rows, out, as_json)
    if out is not None:
        failed = to_file(decoding, rows, out, as_json=as_json)
    else:
        failed = to_stdout(decoding, rows) if as_json else live(decoding, rows[0])
    raise typer.Exit(FAILED if failed else 0)


def _check_output(rows: list[Prompt], out: Path | None, as_json: bool) -> None:
    from adafuse.cli.result_file import check_out

    if out is not None:
        check_out(out)
    elif len(rows) > 1 and not as_json:
        raise UserError(f"{len(rows)} prompts go to a file or print as JSON; add --out or --json")
