"""What no single field of a configuration can know; every error is one sentence."""

import os
from pathlib import Path

from adafuse.comparison.published import read_published
from adafuse.errors import UserError
from adafuse.pipeline.check_benchmark import check_benchmark
from adafuse.pipeline.check_experiments import check_experiments
from adafuse.pipeline.check_run import check_run
from adafuse.pipeline.config import Config, ModelConfig
from adafuse.scoring.tasks import STRICT


def check_config(config: Config) -> None:
    """Check a configuration against itself and the files that it names.

    Raises:
        UserError: the first thing that is wrong.
    """
    _check_results(Path(config.results))
    for name, model in config.models.items():
        _check_model(name, model)
    for name, benchmark in config.benchmarks.items():
        check_benchmark(name, benchmark)
    for name, run in config.runs.items():
        check_run(name, run, config)
    _check_protocols(config)
    if config.published_numbers is not None:
        read_published(Path(config.published_numbers))
    check_experiments(config)


def _check_results(folder: Path) -> None:
    existing = next(
        path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()
    )
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(
            f"results folder {str(folder)!r} cannot be written because of {str(existing)!r};"
            " name another one as `results`"
        )


def _check_model(name: str, model: ModelConfig) -> None:
    folder = Path(model.path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(
                f"models.{name}: {model.path!r} has no config.json; give a Hugging Face model"
                " folder"
            )
        if not any(folder.glob("tokenizer*")):
            raise UserError(
                f"models.{name}: {model.path!r} has no tokenizer; put its tokenizer.json there"
            )
        if model.revision is not None:
            raise UserError(
                f"models.{name}: revision {model.revision!r} is for hub models, but {model.path!r}"
                " is a folder; remove it"
            )
    elif model.path.startswith((".", "/", "~")) or model.path.count("/") != 1:
        raise UserError(
            f"models.{name}: {model.path!r} is not a folder; give a model folder or a hub id"
            " org/name"
        )


def _check_protocols(config: Config) -> None:
    if config.protocols[0] != STRICT or len(set(config.protocols)) != len(config.protocols):
        raise UserError(
            f"protocols is {list(config.protocols)}; write [strict] or [strict, published]"
        )
