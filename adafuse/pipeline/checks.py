"""What no single field of a configuration can know; every error is one sentence."""

import os
from pathlib import Path

from adafuse.comparison.published import read_published
from adafuse.errors import UserError
from adafuse.pipeline.check_benchmark import check_benchmark
from adafuse.pipeline.check_experiments import check_experiments
from adafuse.pipeline.check_loading import check_loading
from adafuse.pipeline.check_model import check_model
from adafuse.pipeline.check_run import check_run
from adafuse.pipeline.config import Config
from adafuse.scoring.tasks import STRICT


def check_config(config: Config) -> None:
    """Check a configuration against itself and the files that it names.

    Raises:
        UserError: the first thing that is wrong.
    """
    _check_results(Path(config.results))
    for name, model in config.models.items():
        check_model(f"models.{name}", model.path, model.revision)
        check_loading(name, config)
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


def _check_protocols(config: Config) -> None:
    if config.protocols[0] != STRICT or len(set(config.protocols)) != len(config.protocols):
        raise UserError(
            f"protocols is {list(config.protocols)}; write [strict] or [strict, published]"
        )
