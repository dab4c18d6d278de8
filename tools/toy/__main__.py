"""`python -m tools.toy`: write the benchmarks, train the models, or measure ranker and fuser."""

import logging
import multiprocessing
from pathlib import Path
from typing import Annotated, Literal

import typer

from tools.toy.records import MODEL_NAMES, PROMPTS

log = logging.getLogger("tools.toy")

app = typer.Typer(help="Make the toy world again.", no_args_is_help=True)

Out = Annotated[Path, typer.Option(help="The folder to write to.")]
BLENDER = ("pair_ranker", "gen_fuser")


@app.command()
def rows(out: Out, part: Literal["test", "dev"] = "test") -> None:
    """Write the benchmark files."""
    from tools.toy.world import build_world, write_rows

    world = build_world()
    write_rows(world.test if part == "test" else world.dev, out)
    log.info("wrote %s", out)


@app.command()
def train(out: Out, model: Annotated[list[str] | None, typer.Option()] = None) -> None:
    """Train the named models, or all of them, two processes side by side."""
    names = model or [*MODEL_NAMES, *BLENDER]
    if unknown := {*names} - {*MODEL_NAMES, *BLENDER}:
        raise typer.BadParameter(f"unknown models: {', '.join(sorted(unknown))}")
    with multiprocessing.get_context("spawn").Pool(min(2, len(names)), maxtasksperchild=1) as pool:
        pool.starmap(train_one, [(name, out / name) for name in names], chunksize=1)


def train_one(name: str, folder: Path) -> None:
    """Train one model on one thread and write it to a folder."""
    import torch

    from tools.toy import gen_fuser, pair_ranker
    from tools.toy.train import Recipe, train_model

    _log()
    torch.set_num_threads(1)
    if name in MODEL_NAMES:
        train_model(name, folder, Recipe())
    else:
        (pair_ranker if name == "pair_ranker" else gen_fuser).train(folder)


@app.command()
def measure(models: Annotated[Path | None, typer.Option(help="Where both are.")] = None) -> None:
    """Measure the ranker and the fuser on all four benchmarks."""
    import torch

    from tools.toy.measure import MODELS, load_pair, measure

    torch.set_num_threads(1)
    ensemble = load_pair()
    for name in PROMPTS:
        log.info("%s: %s", name, measure(name, ensemble, models or MODELS))


@app.callback()
def _log() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")


if __name__ == "__main__":
    app()
