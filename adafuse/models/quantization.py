"""Quantized weights: bitsandbytes makes them while a model is loaded, or its files have them."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from importlib.util import find_spec
from typing import Any

import torch
from transformers import BitsAndBytesConfig, PreTrainedConfig, PreTrainedModel
from transformers import __version__ as installed
from transformers.quantizers.auto import get_hf_quantizer
from transformers.quantizers.base import HfQuantizer

from adafuse.errors import UserError, install
from adafuse.models.spec import ModelEntry, ModelSpec
from adafuse.models.wrappers import factory_of

# It warns at every product that bfloat16 inputs are cast, which is how LLM.int8() works.
logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)

_PACKED = 32  # rows of a 4-bit matrix that bitsandbytes packs together on a CPU


def check_quantization(quantization: str | None, device: torch.device) -> None:
    """Refuse what bitsandbytes cannot quantize here, before any weights are read."""
    if quantization is None:
        return
    if find_spec("bitsandbytes") is None:
        raise UserError(
            f"quantization {quantization!r} needs bitsandbytes, which is not installed; leave"
            f" quantization out, or {install('quantized')}"
        )
    import bitsandbytes

    if device.type not in bitsandbytes.supported_torch_devices:
        raise UserError(
            f"quantization {quantization!r} cannot run on {device} with bitsandbytes"
            f" {bitsandbytes.__version__}; use a CUDA device, or leave quantization out"
        )


def quantization_config(quantization: str | None) -> BitsAndBytesConfig | None:
    """Return LLM.int8(), or NF4 weights that are multiplied in bfloat16."""
    if quantization is None:
        return None
    factory: Any = BitsAndBytesConfig
    config: BitsAndBytesConfig = factory(
        load_in_8bit=quantization == "int8",
        load_in_4bit=quantization == "int4",
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    return config


@contextmanager
def without_outliers(network: PreTrainedModel) -> Iterator[None]:
    """Make LLM.int8() treat each token by itself; it chooses outliers by all of a forward."""
    if not getattr(network, "is_loaded_in_8bit", False):
        yield
        return
    from bitsandbytes.nn import Linear8bitLt

    states = [module.state for module in network.modules() if isinstance(module, Linear8bitLt)]
    with ExitStack() as restored:
        for state in states:
            restored.callback(setattr, state, "threshold", state.threshold)
            state.threshold = 0.0
        yield


def check_packable(network: PreTrainedModel, spec: ModelSpec) -> None:
    """Refuse a 4-bit model on a CPU with a matrix that bitsandbytes cannot pack there."""
    if spec.quantization != "int4" or network.device.type != "cpu":
        return
    from bitsandbytes.nn import Linear4bit

    for module in network.modules():
        if isinstance(module, Linear4bit) and module.out_features % _PACKED:
            raise UserError(
                f"model {spec.path!r} cannot be int4 on a CPU, where the rows of a matrix"
                f" ({module.out_features} here) must be a multiple of {_PACKED}; use int8 or a"
                " CUDA device"
            )


_NEEDED = {
    "awq": ("gptqmodel",),
    "bitsandbytes": ("bitsandbytes",),
    "compressed-tensors": ("compressed_tensors",),
    "gptq": ("gptqmodel", "optimum"),
    "torchao": ("torchao",),
}
"""Modules that transformers needs for kinds of quantized checkpoints; others, it names itself."""


def kind_of(config: PreTrainedConfig) -> str | None:
    """Return how the weights of a checkpoint are quantized, such as "gptq"; None if they are not.

    The names are those of `quant_method` in transformers.
    """
    for part in (config, config.get_text_config()):
        if (settings := getattr(part, "quantization_config", None)) is not None:
            if hasattr(settings, "to_dict"):
                settings = settings.to_dict()
            given = settings if isinstance(settings, dict) else {}
            bits = given.get("load_in_8bit") or given.get("load_in_4bit")
            return str(given.get("quant_method") or ("bitsandbytes" if bits else "an unnamed kind"))
    return None


def quantizer_of(
    model: ModelEntry, config: PreTrainedConfig
) -> tuple[HfQuantizer | None, PreTrainedConfig]:
    """Return what reads or makes quantized weights of a model, if it has any, and its config then.

    Raises:
        UserError: its checkpoint is quantized in a way that cannot be read here.
    """
    kind = kind_of(config)
    if missing := [name for name in _NEEDED.get(kind or "", ()) if find_spec(name) is None]:
        names = " ".join(missing).replace("_", "-")
        raise UserError(
            f"model {model.path!r} is quantized ({kind}), which needs packages that are not"
            f" installed; run pip install {names}, or name a checkpoint that is not quantized"
        )
    try:
        quantizer, config, _ = get_hf_quantizer(  # type: ignore[no-untyped-call]
            deepcopy(config), quantization_config(model.quantization), None, True, {}
        )
    except (ImportError, ValueError, RuntimeError, LookupError, TypeError, AttributeError) as error:
        if kind is None:
            raise
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise _unreadable(model.path, kind, f"cannot be read here ({reason})") from error
    if kind is not None and quantizer is None:
        raise _unreadable(model.path, kind, f"transformers {installed} cannot read")
    return quantizer, config


def _unreadable(path: str, kind: str, reason: str) -> UserError:
    return UserError(
        f"model {path!r} is quantized ({kind}), which {reason}; name a checkpoint of it that is not"
        " quantized, or use it on a server"
    )


def dequantized_bytes(model: ModelSpec, config: PreTrainedConfig) -> int | None:
    """Return the bytes of weights that are quantized in files but not in memory; None if they are.

    transformers dequantizes some kinds where a device cannot compute with them, and those of
    compressed-tensors at the first forward pass.
    """
    quantizer: Any
    quantizer, config = quantizer_of(model, config)
    settings = getattr(quantizer, "quantization_config", None)
    if kind_of(config) != "compressed-tensors" and not getattr(settings, "dequantize", False):
        return None
    network = without_weights(model, config)
    return network.num_parameters() * network.dtype.itemsize


def without_weights(model: ModelSpec, config: PreTrainedConfig) -> PreTrainedModel:
    """Return the network of a model, of a dtype that is resolved, with no memory for weights."""
    factory, dtype = factory_of(config), getattr(torch, model.dtype)
    with torch.device("meta"):
        network: PreTrainedModel = factory.from_config(
            config, dtype=dtype, trust_remote_code=model.trust_remote_code
        )
    return network
