"""Weights in 8 or 4 bits, by bitsandbytes (arXiv 2208.07339, 2305.14314)."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from transformers import BitsAndBytesConfig, PreTrainedConfig, PreTrainedModel

from adafuse.errors import UserError, known
from adafuse.models.devices import Placement

QUANTIZATIONS = ("int8", "int4")

_PACKED = 32
"""On a CPU, bitsandbytes packs so many rows of a 4-bit matrix together."""


def check_quantization(quantization: str | None, placement: Placement) -> None:
    """Refuse what cannot be quantized here, before any weights are read.

    Raises:
        UserError: an unknown name, no bitsandbytes, or a device that it does not know.
    """
    if quantization is None:
        return
    if quantization not in QUANTIZATIONS:
        raise UserError(known("quantization", quantization, list(QUANTIZATIONS)))
    if find_spec("bitsandbytes") is None:
        raise UserError(
            f"quantization {quantization!r} needs bitsandbytes, which is not installed; run"
            " pip install 'adafuse[quantized]', or leave quantization out"
        )
    import bitsandbytes

    if placement.first.type not in bitsandbytes.supported_torch_devices:
        raise UserError(
            f"quantization {quantization!r} cannot run on {placement.first} with bitsandbytes"
            f" {bitsandbytes.__version__}; use a CUDA device, or leave quantization out"
        )


def check_unquantized(config: PreTrainedConfig, quantization: str | None, name: str) -> None:
    """Refuse to quantize weights that are quantized already.

    Raises:
        UserError: the model's config.json says that they are.
    """
    if quantization is not None and getattr(config, "quantization_config", None) is not None:
        raise UserError(
            f"model {name!r} is quantized already, says its config.json; leave out quantization"
            f" {quantization!r}"
        )


def quantization_config(quantization: str | None) -> BitsAndBytesConfig | None:
    """Return LLM.int8(), or NF4 weights that are multiplied in bfloat16."""
    if quantization is None:
        return None
    # It warns at every product that bfloat16 inputs are cast, which is how LLM.int8() works.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    settings: dict[str, Any] = {"load_in_8bit": True}
    if quantization == "int4":
        settings = {
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_compute_dtype": torch.bfloat16,
        }
    return BitsAndBytesConfig(**settings)  # type: ignore[no-untyped-call]


@contextmanager
def without_outliers(network: PreTrainedModel) -> Iterator[None]:
    """Make LLM.int8() treat each token by itself for a while, so that batches can be compared.

    What it leaves out of 8 bits it chooses by all tokens of a forward.
    """
    if not getattr(network, "is_loaded_in_8bit", False):
        yield
        return
    from bitsandbytes.nn import Linear8bitLt

    states = [each.state for each in network.modules() if isinstance(each, Linear8bitLt)]
    thresholds = [state.threshold for state in states]
    for state in states:
        state.threshold = 0.0
    try:
        yield
    finally:
        for state, threshold in zip(states, thresholds, strict=True):
            state.threshold = threshold


def check_packable(network: PreTrainedModel, quantization: str | None, name: str) -> None:
    """Refuse a 4-bit model on a CPU that bitsandbytes could not multiply with.

    Raises:
        UserError: a matrix whose rows cannot be packed.
    """
    if quantization != "int4" or network.device.type != "cpu":
        return
    from bitsandbytes.nn import Linear4bit

    matrices = [each for each in network.modules() if isinstance(each, Linear4bit)]
    for matrix in matrices:
        if matrix.out_features % _PACKED:
            raise UserError(
                f"model {name!r} cannot be int4 on a CPU, where the rows of a matrix"
                f" ({matrix.out_features} here) must be a multiple of {_PACKED}; use int8 or a"
                " CUDA device"
            )
