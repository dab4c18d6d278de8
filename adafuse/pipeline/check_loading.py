"""What can be told of loading a model before a job starts: its device and its files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adafuse.errors import UserError
from adafuse.methods import METHODS
from adafuse.models.device_names import DeviceName
from adafuse.models.weight_files import check_pickled
from adafuse.pipeline.config import Config


def check_loading(name: str, config: Config) -> None:
    """Check a model's device against the GPUs that decode jobs ask for, and its weights' format.

    Raises:
        UserError: no such device, more GPUs than are asked for, or weights that may not be read.
    """
    model = config.models[name]
    if Path(model.path).is_dir():
        with _named(f"models.{name}"):
            check_pickled(model.path, allowed=model.allow_pickle)
    with _named("decode" if model.device is None else f"models.{name}"):
        text = model.device or config.decode.device
        device = DeviceName.parse(text)
        for key, gpu in _asked(name, config):
            _check_gpus(text, device, key, gpu)


def _asked(name: str, config: Config) -> Iterator[tuple[str, int]]:
    """Yield how many GPUs the jobs with a model may ask for, and the keys that say so."""
    for run_name, run in config.runs.items():
        if name in run.models and run.method in METHODS and METHODS[run.method].uses_models:
            if run.cluster.gpu is None:
                yield "decode.gpu", config.decode.gpu
            else:
                yield f"runs.{run_name}.cluster.gpu", run.cluster.gpu


def _check_gpus(text: str, device: DeviceName, key: str, gpu: int) -> None:
    # A job that asks for none may still use those of a workstation.
    if gpu >= device.gpus or (gpu == 0 and device.strategy is None):
        return
    least = f"{device.gpus} GPUs, counted from 0" if device.devices else f"{device.gpus} GPUs"
    raise UserError(
        f"device {text!r} needs at least {least}, but {key} is {gpu}; set it to as many GPUs as a"
        " job needs"
    )


@contextmanager
def _named(where: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
