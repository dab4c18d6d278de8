"""What can be told of loading a model before a job starts: its device and its files."""

from pathlib import Path

from adafuse.errors import UserError
from adafuse.models.device_names import DeviceName
from adafuse.models.hub import check_pickled
from adafuse.pipeline.config import DecodeConfig, ModelConfig


def check_loading(name: str, model: ModelConfig, settings: DecodeConfig) -> None:
    """Check a model's device against the GPUs that a decode job asks for, and its weights' format.

    Raises:
        UserError: no such device, more GPUs than are asked for, or weights that may not be read.
    """
    text, where = model.device or settings.device, f"models.{name}"
    try:
        device = DeviceName.parse(text)
        if Path(model.path).is_dir():
            check_pickled(model.path, allowed=model.allow_pickle)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    if device.strategy is None:
        return
    fewest = max(2, len(device.devices))
    if settings.gpu < fewest:
        least = "" if device.devices else "at least "
        raise UserError(
            f"{where}: device {text!r} spreads the model over {least}{fewest} GPUs, but decode.gpu"
            f" is {settings.gpu}; set it to as many GPUs as a job needs"
        )
