"""`adafuse generate`: continue the prompts of a file with one or more models."""

import logging
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm

from adafuse.cli.loading_options import (
    Device,
    Pickled,
    Quantization,
    Trusted,
    flags,
    one_or_each,
)
from adafuse.cli.method_options import number_or_name, with_options
from adafuse.cli.prompts import Prompt, read_prompts
from adafuse.errors import UserError
from adafuse.methods import resolve
from adafuse.methods.limits import Settings
from adafuse.methods.options import parse
from adafuse.pipeline.provenance import versions
from adafuse.records import Result
from adafuse.selection.registry import SELECTIONS
from adafuse.traces.atomic import check_writable

logger = logging.getLogger(__name__)


def generate(
    model: Annotated[list[str], typer.Option(help="A model folder or hub id; repeat it to fuse.")],
    prompts: Annotated[Path, typer.Option(help='JSON lines {"id": ..., "prompt": ...}.')],
    out: Annotated[Path, typer.Option(help="The Parquet file to write.")],
    method: Annotated[str, typer.Option(help="See `adafuse methods`.")] = "adafuse",
    weight: Annotated[list[float] | None, typer.Option(help="One per model; 1 each.")] = None,
    revision: Annotated[list[str] | None, typer.Option(help="Hub revision, one per model.")] = None,
    tau: Annotated[float | None, typer.Option(help="Margin threshold; margins are 0 to 1.")] = None,
    max_words: Annotated[int | None, typer.Option(help="M, the most words a round.")] = None,
    branching: Annotated[int | None, typer.Option(help="B, alternatives where unsure.")] = None,
    fusion: Annotated[str | None, typer.Option(help="mean_nll, mixture or most_confident.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="Any option of the method as NAME=VALUE; repeatable.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Generated ids of some model.")] = 256,
    max_rounds: Annotated[int | None, typer.Option(help="Rounds; no limit by default.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Cut before it; repeatable.")] = None,
    batch_size: Annotated[str, typer.Option(help="Examples at a time: a number, or auto.")] = "8",
    engine: Annotated[str, typer.Option(help="tree, or reference to check it.")] = "tree",
    device: Device = None,
    quantization: Quantization = None,
    trust_remote_code: Trusted = None,
    allow_pickle: Pickled = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    chat: Annotated[bool, typer.Option(help="Use each model's own chat template.")] = False,
) -> None:
    r"""Continue every prompt and write one row per prompt, with every round that led to it.

    Example: adafuse generate --model A --model B --prompts in.jsonl --out out.parquet --stop "\n"
    """
    named = _given(tau=tau, max_words=max_words, branching=branching, fusion=fusion)
    options = with_options(named, option or [])
    settings = _given(
        max_new_tokens=max_new_tokens, max_rounds=max_rounds, engine=engine,
        batch_size=number_or_name(batch_size),
        stop=[string.replace("\\n", "\n") for string in stop or []],
    )  # fmt: skip
    _refuse_selection(method)
    resolve(method, options).check_models(len(model))
    parse(Settings, settings, "generate")
    rows = read_prompts(prompts)
    check_writable(out)
    loading = _given(
        weights=weight, revisions=revision, device=device or "auto", dtype=dtype, chat=chat,
        quantization=one_or_each(quantization),
        trust_remote_code=flags(model, trust_remote_code, "--trust-remote-code"),
        allow_pickle=flags(model, allow_pickle, "--allow-pickle"),
    )  # fmt: skip
    decoding = {"method": method, **options, **settings}
    results = _decode(model, rows, loading, decoding)
    _write(out, rows, results, {"models": model, **loading, **decoding})


def _refuse_selection(method: str) -> None:
    if method in SELECTIONS:
        raise UserError(
            f"method {method!r} chooses between runs of the workflow and decodes nothing itself;"
            " use it in a configuration (config/README.md) or name a method that decodes"
        )


def _given(**values: Any) -> dict[str, Any]:
    """Keep the values that were given: a method refuses options that it does not have."""
    return {name: value for name, value in values.items() if value is not None}


def _decode(
    models: list[str], rows: list[Prompt], loading: dict[str, Any], settings: dict[str, Any]
) -> list[Result]:
    from adafuse.ensemble import Ensemble  # imports torch, which bad input need not wait for

    ensemble = Ensemble.from_pretrained(models, **loading)
    stream = ensemble.stream([row.text for row in rows], **settings)
    results = dict(tqdm(stream, total=len(rows), unit="prompt", disable=None))
    return [results[index] for index in range(len(rows))]


def _write(out: Path, rows: list[Prompt], results: list[Result], settings: dict[str, Any]) -> None:
    import pyarrow as pa

    from adafuse.traces.schema import RESULT_FIELDS, result_columns
    from adafuse.traces.table import write_table

    columns = [pa.field("id", pa.string()), *RESULT_FIELDS]
    table = [
        {"id": row.id, **result_columns(result)} for row, result in zip(rows, results, strict=True)
    ]
    write_table(out, columns, table, {"settings": settings, "versions": versions()})
    failed = sum(result.stop_reason == "error" for result in results)
    typer.echo(f"{len(rows)} prompts continued, {failed} of them failed; written to {out}")
