"""What no single field of a configuration can know; every error is one sentence."""

import os
from pathlib import Path

from adafuse.comparison.published import read_published
from adafuse.errors import UserError, known
from adafuse.methods import resolve
from adafuse.methods.weights import check_weights
from adafuse.pipeline.check_benchmark import check_benchmark
from adafuse.pipeline.config import Config, RunConfig
from adafuse.scoring.spm import require_model
from adafuse.scoring.tasks import STRICT


def check_config(config: Config) -> None:
    """Check a configuration against itself and the files that it names.

    Raises:
        UserError: the first thing that is wrong.
    """
    _check_results(Path(config.results))
    for name, model in config.models.items():
        _check_model(f"models.{name}", model.path, model.revision)
    for name, benchmark in config.benchmarks.items():
        check_benchmark(name, benchmark)
    for name, run in config.runs.items():
        _check_run(name, run, config)
    _check_protocols(config)
    if config.published_numbers is not None:
        read_published(Path(config.published_numbers))


def _check_results(folder: Path) -> None:
    existing = next(
        path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()
    )
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(
            f"results folder {str(folder)!r} cannot be written because of {str(existing)!r};"
            " name another one as `results`"
        )


def _check_model(where: str, path: str, revision: str | None) -> None:
    folder = Path(path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(
                f"{where}: {path!r} has no config.json; give a Hugging Face model folder"
            )
        if not any(folder.glob("tokenizer*")):
            raise UserError(f"{where}: {path!r} has no tokenizer; put its tokenizer.json there")
        if revision is not None:
            raise UserError(
                f"{where}: revision {revision!r} is for hub models, but {path!r} is a folder;"
                " remove it"
            )
    elif path.startswith((".", "/", "~")) or path.count("/") != 1:
        raise UserError(
            f"{where}: {path!r} is not a folder; give a model folder or a hub id org/name"
        )


def _check_protocols(config: Config) -> None:
    if config.protocols[0] != STRICT or len(set(config.protocols)) != len(config.protocols):
        raise UserError(
            f"protocols is {list(config.protocols)}; write [strict] or [strict, published]"
        )
    if any(benchmark.metric == "translation" for benchmark in config.benchmarks.values()):
        require_model(config.spm_sha256)


def _check_run(name: str, run: RunConfig, config: Config) -> None:
    try:
        method = resolve(run.method, run.options)
        method.check_models(len(run.models))
        check_weights(run.weights, len(run.models))
    except UserError as error:
        raise UserError(f"runs.{name}: {error}") from None
    options = method.options.model_dump()
    for option in method.checkpoints:
        where = f"runs.{name}.options.{option}"
        _check_model(where, options[option], options[f"{option}_revision"])
    for model in run.models:
        if model not in config.models:
            raise UserError(f"runs.{name}: {known('model', model, list(config.models))}")
