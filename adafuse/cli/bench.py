"""`adafuse bench`: what fused decoding costs on this machine, in terms of the models alone."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adafuse.errors import UserError
from adafuse.traces.atomic import check_writable, write_text

if TYPE_CHECKING:
    from adafuse.models.language_model import LanguageModel

TOY = ("adafuse/toy/models/mistral", "adafuse/toy/models/llama")


def bench(
    model: Annotated[
        list[str] | None, typer.Option(help="A model folder or hub id; the toy pair without it.")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="A config.json: random weights of that shape over --model's tokenizer."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for bench.json and bench.md.")] = Path(
        "results/bench"
    ),
    repeats: Annotated[int, typer.Option(min=1, help="Passes over every case.")] = 5,
    prompts: Annotated[int, typer.Option(min=1, help="Chains of thought.")] = 96,
    tau: Annotated[
        float | None,
        typer.Option(help="Margin threshold; 0.7, or the median margin of random weights."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda:0, balanced, ...")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 is one per core.")] = 0,
    others: Annotated[bool, typer.Option(help="Time all other methods, too.")] = True,
) -> None:
    """Time generate, adafuse and all other methods side by side; medians of repeats, in one run.

    Example: adafuse bench --repeats 3
    """
    check_writable(out / "bench.json")
    import torch
    from tqdm import tqdm

    from adafuse.bench.floor import floor
    from adafuse.bench.measure import measure
    from adafuse.bench.report import machine, peak, to_json, to_markdown
    from adafuse.bench.suite import Suite, median_margin

    torch.set_num_threads(threads or os.cpu_count() or 1)
    models = _models(model or list(TOY), shape or [], device, dtype)
    if tau is None:
        tau = median_margin(models) if shape else 0.7
    suite = Suite(models, prompts, (1, 8, 32), 1500, 256, {"tau": tau}, _others() if others else {})
    floors = [floor(each) for each in models if each.device.type == "cuda"]
    cases = suite.cases()
    with tqdm(total=(repeats + 1) * len(cases), disable=None, unit="case") as bar:

        def progress(name: str) -> None:
            bar.set_description(name)
            bar.update()

        timings = measure(cases, repeats, progress)
    where, ratios, most = machine(models[0]), suite.ratios(timings, floors), peak(models[0])
    command = shlex.join(["adafuse", *sys.argv[1:]])
    write_text(out / "bench.json", to_json(where, command, timings, ratios, most))
    text = to_markdown(where, command, timings, ratios, most)
    write_text(out / "bench.md", text)
    typer.echo(text, nl=False)


def _models(
    paths: list[str], shapes: list[str], device: str, dtype: str
) -> "tuple[LanguageModel, ...]":
    from adafuse.bench.random_models import random_model
    from adafuse.ensemble import Ensemble
    from adafuse.models.devices import dtype_of, placements

    if not shapes:
        return Ensemble.from_pretrained(paths, device=device, dtype=dtype).models
    if len(shapes) != len(paths):
        raise UserError(f"{len(shapes)} shapes for {len(paths)} models; give one per model")
    places = placements(device, len(shapes))
    if any(place.spread for place in places):
        raise UserError(f"device {device!r} is not for random weights; name one device")
    return tuple(
        random_model(shape, path, device=place.first, dtype=dtype_of(dtype, place.first), seed=seed)
        for seed, (shape, path, place) in enumerate(zip(shapes, paths, places, strict=True))
    )


def _others() -> dict[str, dict[str, object]]:
    """Return every method that runs on several models as it is; checkpoints are not at hand."""
    from adafuse.methods import METHODS

    left_out = ("adafuse", "single", "llm_blender")
    return {name: {} for name in METHODS if name not in left_out}
