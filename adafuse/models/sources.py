"""Where models come from and how each of them is loaded, all settings put together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from adafuse.errors import UserError
from adafuse.models.devices import Placement, dtype_of, placements
from adafuse.models.quantization import check_quantization


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A folder or hub id, and how it is loaded and prompted.

    Code that comes with the model runs only if it is trusted with `trust_remote_code`; weights in
    Python's pickle format, which can hold code, are read only with `allow_pickle`.
    """

    path: str
    revision: str | None
    placement: Placement
    dtype: torch.dtype
    chat: bool = False
    quantization: str | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False


def sources(
    paths: Sequence[str],
    *,
    revisions: Sequence[str | None] | None,
    device: str | Sequence[str],
    dtype: str,
    chat: bool | Sequence[bool],
    quantization: str | Sequence[str | None] | None,
    trust_remote_code: bool | Sequence[bool],
    allow_pickle: bool | Sequence[bool],
) -> list[ModelSource]:
    """Combine the settings of all models, one source each.

    Raises:
        UserError: a setting that is not there for each model, or that cannot be had here.
    """
    count = len(paths)
    rows = zip(
        paths,
        _each(revisions, count, "revisions"),
        placements(device, count),
        _each(chat, count, "chat settings"),
        _each(quantization, count, "quantizations"),
        _each(trust_remote_code, count, "values of trust_remote_code"),
        _each(allow_pickle, count, "values of allow_pickle"),
        strict=True,
    )
    wanted = [
        ModelSource(path, pin, place, dtype_of(dtype, place.first), *others)
        for path, pin, place, *others in rows
    ]
    for source in wanted:
        check_quantization(source.quantization, source.placement)
    return wanted


def _each(values: object, count: int, what: str) -> list[Any]:
    """Return one value per model; what is no sequence is that of all."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        return [values] * count
    if len(values) != count:
        raise UserError(f"{len(values)} {what} for {count} models; give one per model")
    return list(values)
