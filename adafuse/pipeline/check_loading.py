"""What can be told of loading a model before a job starts: its device and its files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adafuse.errors import UserError
from adafuse.models.device_names import DeviceName
from adafuse.models.weight_files import check_pickled
from adafuse.pipeline.config import DecodeConfig, ModelConfig


def check_loading(name: str, model: ModelConfig, settings: DecodeConfig) -> None:
    """Check a model's device against the GPUs that a decode job asks for, and its weights' format.

    Raises:
        UserError: no such device, more GPUs than are asked for, or weights that may not be read.
    """
    if Path(model.path).is_dir():
        with _named(f"models.{name}"):
            check_pickled(model.path, allowed=model.allow_pickle)
    with _named("decode" if model.device is None else f"models.{name}"):
        _check_device(model.device or settings.device, settings.gpu)


@contextmanager
def _named(where: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _check_device(text: str, gpu: int) -> None:
    device = DeviceName.parse(text)
    if device.strategy is None:
        return
    fewest = max(2, len(device.devices))
    if gpu < fewest:
        least = "" if device.devices else "at least "
        raise UserError(
            f"device {text!r} spreads the model over {least}{fewest} GPUs, but decode.gpu is"
            f" {gpu}; set it to as many GPUs as a job needs"
        )
