"""LoRA adapters: a base model with one is a model of its own, over the same weights."""

import copy
import logging
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adafuse.errors import UserError, install
from adafuse.models.spec import ModelEntry
from adafuse.storage.yaml_files import parse_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_OVER_THE_SAME = (None, True, False, "gaussian", "orthogonal", "eva")
"""What `init_lora_weights` says of adapters over the base model's own weights."""


def check_lora(model: ModelEntry) -> None:
    """Refuse the adapter of a model if it cannot be used; say if it was made for another one.

    Raises:
        UserError: it is no folder of a LoRA with safetensors weights, or peft is not installed.
    """
    if (adapter := model.adapter) is None:
        return
    config = check_folder(adapter)
    if find_spec("peft") is None:
        raise UserError(
            f"adapter {adapter!r} needs the package peft, which is not installed;"
            f" {install('adapters')}"
        )
    base = str(config.get("base_model_name_or_path") or model.path)
    if Path(base).name != Path(model.path).resolve().name:
        logger.warning("adapter %s was made for %s, and is used with %s", adapter, base, model.path)


def warn_of_template(adapter: str, template: object) -> None:
    """Say if an adapter comes with another chat template than its model's, which is the one used.

    Libraries for training save the tokenizer beside an adapter, with the template of the training.
    """
    own, settings = Path(adapter, "chat_template.jinja"), Path(adapter, "tokenizer_config.json")
    try:
        text = own.read_text("utf-8") if own.is_file() else None
        found = text or parse_json(settings.read_text("utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError):
        return
    if found and str(found).strip() != str(template).strip():
        logger.warning(
            "adapter %s has a chat template of its own, which is not used; in conversations, name a"
            " copy of its model's folder in which chat_template.jinja is that of the adapter",
            adapter,
        )


def check_folder(adapter: str) -> dict[str, Any]:
    """Return the config of a LoRA adapter; refuse a folder that is none, or has other weights."""
    config = _config(adapter)
    kind, task = config.get("peft_type"), config.get("task_type")
    if kind != "LORA":
        raise UserError(f"adapter {adapter!r} is of kind {kind}; only LoRA adapters can be used")
    if task not in (None, "CAUSAL_LM"):
        raise UserError(f"adapter {adapter!r} is for {task}; fused decoding needs CAUSAL_LM")
    if config.get("alora_invocation_tokens"):
        raise UserError(
            f"adapter {adapter!r} is an activated LoRA (alora_invocation_tokens), which acts only"
            " after some tokens of a prompt; it cannot be used, name another adapter"
        )
    if not Path(adapter, _WEIGHTS).is_file():
        raise UserError(
            f"adapter {adapter!r} has no {_WEIGHTS}; pickled weights of adapters are not read, so"
            " save it again with safetensors"
        )
    return config


def _config(adapter: str) -> dict[str, Any]:
    file = Path(adapter, _CONFIG)
    try:
        config = parse_json(file.read_text(encoding="utf-8"))
    except OSError:
        raise UserError(
            f"adapter {adapter!r} has no {_CONFIG}; name the folder of a LoRA (one of the hub has"
            " to be downloaded first: hf download ID --local-dir FOLDER)"
        ) from None
    except ValueError as error:
        raise UserError(f"{str(file)!r} is not JSON ({error}); save the adapter again") from error
    if not isinstance(config, dict):
        raise UserError(f"{str(file)!r} holds no settings, but {config!r}; save the adapter again")
    return config


def adapted(network: "PreTrainedModel", model: ModelEntry) -> "PreTrainedModel":
    """Return a network with the adapter of a model, over the weights of `network`, which stays.

    The adapter is not merged into the weights, as that would round them, and several adapters
    could not be over the same ones. One that changes weights of its base, such as PiSSA, or one
    with biases of its own, gets a copy of them.

    Raises:
        UserError: the adapter does not fit.
    """
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors import SafetensorError, safe_open

    assert model.adapter is not None
    config = _config(model.adapter)
    begins, biases = config.get("init_lora_weights"), config.get("bias", "none")
    try:
        with safe_open(Path(model.adapter, _WEIGHTS), "pt") as file:
            saved = {*file.keys()}
        changes = begins not in _OVER_THE_SAME or biases != "none" or "base_layer" in str(saved)
        shared = {id(parameter): parameter for parameter in network.parameters()}
        own = copy.deepcopy(network, {} if changes else shared)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of weights that are missing, which are refused below
            with_adapter = PeftModel.from_pretrained(own, model.adapter)
    except (ValueError, RuntimeError, KeyError, TypeError, OSError, SafetensorError) as error:
        raise _unfit(model, " ".join(str(error).split())[:200]) from error
    if odd := sorted(saved ^ get_peft_model_state_dict(with_adapter).keys()):
        raise _unfit(model, f"{odd[0]} is in only one of them")
    base: PreTrainedModel = with_adapter.get_base_model().eval()
    return base


def _unfit(model: ModelEntry, reason: str) -> UserError:
    return UserError(
        f"adapter {model.adapter!r} does not fit model {model.path!r} ({reason}); name the model"
        " that it was made for"
    )
