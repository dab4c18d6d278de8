"""`adafuse bench`: time fused decoding against its single models."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adafuse.cli.options import (
    MODELS,
    AsJson,
    Device,
    Dtype,
    SomeModels,
    ThreadsOption,
    option,
)
from adafuse.errors import UserError
from adafuse.models.spec import model_specs
from adafuse.storage.files import check_writable, write_text

if TYPE_CHECKING:
    from adafuse.models.language_model import LanguageModel

TOY = ("mistral", "llama")
_LEFT_OUT = ("adafuse", "single", "llm_blender")
"""Methods that are timed otherwise, or need a checkpoint that is not at hand."""


def bench(
    model: SomeModels = None,
    device: Device = None,
    dtype: Dtype = "auto",
    shape: Annotated[
        list[str] | None,
        option("A config.json, for random weights with the tokenizer of --model.", "FILE", MODELS),
    ] = None,
    out: Annotated[Path, option("Folder for bench.json and bench.md.", "FOLDER")] = Path(
        "results/bench"
    ),
    as_json: AsJson = False,
    repeats: Annotated[int, option("Repetitions of every case.", "N", min=1)] = 5,
    chains: Annotated[
        int, option("Number of prompts with chains of thought.", "N", None, "--chains", min=1)
    ] = 96,
    max_new_tokens: Annotated[
        int,
        option(
            "Maximum new tokens of each of these prompts.", "N", None, "--max-new-tokens", min=1
        ),
    ] = 128,
    only: Annotated[
        list[str] | None, option("Run only cases whose name contains this.", "TEXT")
    ] = None,
    tau: Annotated[
        float | None,
        option("Margin threshold; by default 0.7, or with random weights the median margin.", "X"),
    ] = None,
    threads: ThreadsOption = "auto",
    others: Annotated[bool, option("Also time all other methods.")] = True,
) -> None:
    """Compare the time of fused decoding with that of the single models.

    Times the toy models without --model. Figures are medians of repeats.
    """
    check_writable(out / "bench.json")
    from tqdm import tqdm

    from adafuse.bench.suite import Suite, measure, median_margin, record, steps
    from adafuse.models.language_model import loaded
    from adafuse.models.memory import use_threads

    use_threads(threads)
    models = loaded(_models(model or _toy(), shape or [], device or ["auto"], dtype), "bench")
    if tau is None:
        tau = median_margin(models) if shape else 0.7
    methods = _others(len(models)) if others else []
    sizes = chains, (1, 8, 32), 1500, 256, {"tau": tau}
    suite = Suite(models, *sizes, methods, max_new_tokens, only or ())
    cases = suite.cases()
    forwards = [ratio for one in models for ratio in steps(one, wanted=suite.wanted)]
    if not cases and not forwards:
        raise UserError(f"nothing is named like --only {suite.only[0]!r}; try 'B 1, batch 1'")
    with tqdm(desc="first runs, not timed", disable=None, unit="case") as bar:
        timings = measure(cases, repeats, bar)
    command = shlex.join(["adafuse", *sys.argv[1:]])
    measured = record(models[0], command, timings, [*suite.ratios(timings), *forwards])
    _tell(measured, out, "json" if as_json else "md")


def _tell(measured: dict[str, Any], out: Path, shown: str) -> None:
    """Write a record as JSON and Markdown, and print one of them."""
    from adafuse.bench.suite import to_markdown

    texts = {"json": json.dumps(measured, indent=2) + "\n", "md": to_markdown(measured)}
    for suffix, text in texts.items():
        write_text(out / f"bench.{suffix}", text)
    typer.echo(texts[shown], nl=False)


def _others(models: int) -> list[str]:
    """Return the other methods that so many models can be used with."""
    from adafuse.methods import METHODS

    sizes = {name: METHODS[name].models for name in METHODS if name not in _LEFT_OUT}
    return [name for name, (least, most) in sizes.items() if least <= models <= (most or models)]


def _toy() -> list[str]:
    """Return the toy pair, named from here where that is shorter."""
    import adafuse.toy

    paths = [Path(adafuse.toy.__file__).parent / "models" / name for name in TOY]
    here = Path.cwd()
    return [str(p.relative_to(here) if p.is_relative_to(here) else p) for p in paths]


def _models(
    paths: Sequence[str], shapes: Sequence[str], device: Sequence[str], dtype: str
) -> "tuple[LanguageModel, ...]":
    from adafuse.bench.suite import random_model
    from adafuse.models.language_model import load_models
    from adafuse.models.placement import resolved

    specs = model_specs(paths, device=device, dtype=dtype)
    if not shapes:
        return tuple(load_models(specs))
    if len(shapes) != len(paths):
        raise UserError(f"{len(shapes)} shapes for {len(paths)} models; give one per model")
    for spec in specs:
        if spec.spread:
            raise UserError(f"device {spec.device!r} is not for random weights; name one device")
    pairs = zip(shapes, resolved(specs), strict=True)
    return tuple(random_model(shape, spec, seed) for seed, (shape, spec) in enumerate(pairs))
