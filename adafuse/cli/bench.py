"""`adafuse bench`: what fused decoding costs on this machine, in terms of the models alone."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adafuse.cli.options import MODELS, AsJson, Device, Dtype, SomeModels, option
from adafuse.errors import UserError

if TYPE_CHECKING:
    from adafuse.bench.measure import Timing
    from adafuse.bench.suite import Suite
    from adafuse.models.language_model import LanguageModel

TOY = ("mistral", "llama")


def bench(
    model: SomeModels = None,
    device: Device = None,
    dtype: Dtype = "auto",
    shape: Annotated[
        list[str] | None,
        option(
            "A config.json: random weights of that shape over --model's tokenizer.", "FILE", MODELS
        ),
    ] = None,
    out: Annotated[Path, option("Folder for bench.json and bench.md.", "FOLDER")] = Path(
        "results/bench"
    ),
    as_json: AsJson = False,
    repeats: Annotated[int, option("Passes over every case.", "N", min=1)] = 5,
    chains: Annotated[
        int, option("Prompts that ask for a chain of thought.", "N", None, "--chains", min=1)
    ] = 96,
    tau: Annotated[
        float | None,
        option("Margin threshold; 0.7, or the median margin of random weights.", "X"),
    ] = None,
    threads: Annotated[int, option("CPU threads; 0 is one per core.", "N", min=0)] = 0,
    others: Annotated[bool, option("Time all other methods, too.")] = True,
) -> None:
    """Time fused decoding beside what the models cost alone.

    Without --model, it times the toy models. Figures are medians of repeats
    that take turns.
    """
    from adafuse.traces.atomic import check_writable, write_text

    check_writable(out / "bench.json")
    import torch

    from adafuse.bench.floor import floor
    from adafuse.bench.report import machine, peak, to_json, to_markdown
    from adafuse.bench.suite import Suite, median_margin

    torch.set_num_threads(threads or os.cpu_count() or 1)
    models = _models(model or _toy(), shape or [], device or ["auto"], dtype)
    if tau is None:
        tau = median_margin(models) if shape else 0.7
    suite = Suite(models, chains, (1, 8, 32), 1500, 256, {"tau": tau}, _others() if others else {})
    floors = [floor(each) for each in models if each.device.type == "cuda"]
    timings = _timed(suite, repeats)
    where, ratios, most = machine(models[0]), suite.ratios(timings, floors), peak(models[0])
    command = shlex.join(["adafuse", *sys.argv[1:]])
    told = to_json(where, command, timings, ratios, most)
    text = to_markdown(where, command, timings, ratios, most)
    write_text(out / "bench.json", told)
    write_text(out / "bench.md", text)
    typer.echo(told if as_json else text, nl=False)


def _timed(suite: "Suite", repeats: int) -> "list[Timing]":
    from tqdm import tqdm

    from adafuse.bench.measure import measure

    with tqdm(desc="first runs, not timed", disable=None, unit="case") as bar:
        cases = suite.cases()
        bar.reset(total=(repeats + 1) * len(cases))

        def progress(name: str, tokens_per_second: float | None) -> None:
            if tokens_per_second is not None:
                bar.set_postfix_str(f"{tokens_per_second:.1f} tokens/s", refresh=False)
            bar.set_description(name)
            bar.update()

        return measure(cases, repeats, progress)


def _toy() -> list[str]:
    """Return the toy pair, named from here where that is shorter."""
    import adafuse.toy

    folder = Path(adafuse.toy.__file__).parent / "models"
    paths = [folder / name for name in TOY]
    here = Path.cwd()
    return [str(p.relative_to(here) if p.is_relative_to(here) else p) for p in paths]


def _models(
    paths: Sequence[str], shapes: Sequence[str], device: Sequence[str], dtype: str
) -> "tuple[LanguageModel, ...]":
    from adafuse.bench.random_models import random_model
    from adafuse.ensemble import Ensemble
    from adafuse.models.devices import dtype_of, placements

    if not shapes:
        return Ensemble.from_pretrained(paths, device=device, dtype=dtype).models
    if len(shapes) != len(paths):
        raise UserError(f"{len(shapes)} shapes for {len(paths)} models; give one per model")
    places = placements(device, len(shapes))
    for name, place in zip(list(device) * len(places), places, strict=False):
        if place.spread:
            raise UserError(f"device {name!r} is not for random weights; name one device")
    return tuple(
        random_model(shape, path, device=place.first, dtype=dtype_of(dtype, place.first), seed=seed)
        for seed, (shape, path, place) in enumerate(zip(shapes, paths, places, strict=True))
    )


def _others() -> dict[str, dict[str, object]]:
    """Return every method that runs on several models as it is; checkpoints are not at hand."""
    from adafuse.methods import METHODS

    left_out = ("adafuse", "single", "llm_blender")
    return {name: {} for name in METHODS if name not in left_out}
