"""Language models and how they are loaded: what can be refused is refused before any weights."""

import logging
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as hf_logging

from adafuse.errors import UserError
from adafuse.models.files import check_merged, check_pickled, gguf_ends, torn_file
from adafuse.models.hub import check_hub_adapter, check_path, from_hub
from adafuse.models.memory import TREE_NODES, cache_bytes
from adafuse.models.placement import (
    check_packable,
    device_map,
    device_names,
    layer_devices,
    quantization_config,
    resolved,
)
from adafuse.models.spec import AUTO, ModelEntry, ModelSpec
from adafuse.models.tokenizers import load_tokenizer
from adafuse.tokenization.text import ModelTokenizer, end_ids
from adafuse.tokenization.token_bytes import id_count, special_ids, unused_ids

logger = logging.getLogger(__name__)

NO_LIMIT = 1 << 30


@dataclass(frozen=True, eq=False, kw_only=True)
class LanguageModel(ModelTokenizer):
    """Model m_k: a tokenizer with its network; `context` is the number of positions."""

    network: PreTrainedModel
    context: int

    @cached_property
    def device(self) -> torch.device:
        """Where input ids go."""
        return next(self.network.get_input_embeddings().parameters()).device


def load_models(specs: Sequence[ModelSpec]) -> list[LanguageModel]:
    """Load all models; the configs and tokenizers of all are checked before any weights.

    Models that are spread come last, into the memory that the others leave.
    """
    if not sys.stderr.isatty():
        hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    checked = [(spec, load_config(spec), load_tokenizer(spec)) for spec in resolved(specs)]
    for spec, config, tokenizer in checked:
        check_rows(tokenizer, config, spec.path)
        if (torn := torn_file(spec.path, spec.revision)) is not None:
            raise UserError(torn_weights(torn, spec.path))
    order = sorted(range(len(specs)), key=lambda number: specs[number].spread)
    loaded = {number: _load(*checked[number]) for number in order}
    return [loaded[number] for number in range(len(specs))]


def _load(
    spec: ModelSpec, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> LanguageModel:
    devices = device_names(spec)
    logger.info("loading %s as %s on %s", spec.path, spec.quantization or spec.dtype, devices)
    try:
        loaded: tuple[PreTrainedModel, dict[str, Any]] = from_hub(
            AutoModelForCausalLM,
            spec,
            config=config,
            dtype=getattr(torch, spec.dtype),
            # None prefers them where there are both.
            use_safetensors=None if spec.allow_pickle else True,
            device_map=device_map(spec, config),
            quantization_config=quantization_config(spec.quantization),
            output_loading_info=True,
        )
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"model {spec.path!r} does not fit on {devices}; spread it over several devices"
            " (device: balanced), or use a smaller dtype or quantization"
        ) from error
    network, report = loaded
    check_merged(spec.path, report["unexpected_keys"])
    for name, problem in (("missing_keys", "has no"), ("mismatched_keys", "has another shape of")):
        if report[name]:  # transformers would go on with random numbers
            raise UserError(
                f"model {spec.path!r} {problem} weights {min(map(str, report[name]))} that its"
                " config asks for; download it again"
            )
    check_packable(network, spec)
    chat, ends = _uses_template(spec, tokenizer), gguf_ends(spec.path, spec.revision)
    model = wrapped(network, tokenizer, spec.path, chat=chat, gguf_ends=ends)
    return replace(model, chat_date=spec.chat_date)


def wrapped(
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    name: str | None = None,
    *,
    chat: bool = False,
    gguf_ends: Sequence[int] = (),
) -> LanguageModel:
    """Return a network that is loaded already, with its tokenizer, as a model of an ensemble.

    `gguf_ends` are the end ids that a GGUF file names.
    """
    name = name or str(network.name_or_path) or type(network).__name__
    check_rows(tokenizer, network.config, name)
    return LanguageModel(
        name=name,
        tokenizer=tokenizer,
        end_ids=end_ids(network.config, network.generation_config, tokenizer, name, gguf_ends),
        chat=chat,
        rows=network.config.get_text_config().vocab_size,
        network=network.eval(),  # type: ignore[no-untyped-call]
        context=context_length(network.config),
    )


def load_config(spec: ModelEntry) -> PreTrainedConfig:
    """Load the config of a model; refuse one that cannot decode, or may not be read."""
    check_path(spec.path)
    check_pickled(spec.path, allowed=spec.allow_pickle)
    check_hub_adapter(spec)
    config: PreTrainedConfig = from_hub(AutoConfig, spec)
    if config.is_encoder_decoder:
        raise UserError(
            f"model {spec.path!r} is an encoder-decoder ({config.model_type}); fused decoding"
            " needs causal language models"
        )
    packed = getattr(config, "quantization_config", None) is not None or spec.source[1] is not None
    if spec.quantization is not None and packed:
        raise UserError(
            f"model {spec.path!r} is quantized already; leave out quantization"
            f" {spec.quantization!r}"
        )
    return config


def check_rows(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, name: str) -> None:
    """Refuse a tokenizer with ordinary tokens that the network has no rows for."""
    rows, tokens = config.get_text_config().vocab_size, id_count(tokenizer)
    without_row = set(range(rows, tokens)) - special_ids(tokenizer) - set(unused_ids(tokenizer))
    if without_row:
        raise UserError(
            f"the tokenizer of model {name!r} has {tokens} tokens, but its network only {rows};"
            " give it the tokenizer that it was trained with"
        )


def torn_weights(file: str, model: str) -> str:
    """Say that a file of weights cannot be used."""
    return (
        f"the file {file!r} of model {model!r} is cut off or no safetensors file; download it again"
    )


def _uses_template(spec: ModelSpec, tokenizer: PreTrainedTokenizerBase) -> bool:
    if spec.chat != AUTO:
        return bool(spec.chat)
    if not (has_template := bool(getattr(tokenizer, "chat_template", None))):
        logger.warning("%s has no chat template and continues prompts as they stand", spec.path)
    return has_template


def context_length(config: PreTrainedConfig) -> int:
    """Return the number of positions that a config names; a very large one if it names none."""
    text = config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"):
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return NO_LIMIT


def slots(model: LanguageModel, longest: int) -> int:
    """Return the tokens that an example of at most `longest` ids, with its tree, takes at most."""
    return min(longest, model.context) + TREE_NODES


def demands(model: LanguageModel, longest: int) -> list[tuple[torch.device, int]]:
    """Return the bytes by device that an example of at most `longest` ids, prompt included, needs.

    That is keys and values in each layer, and a float32 row over the vocabulary per tree node.
    """
    per_layer = slots(model, longest) * cache_bytes(model.network.config, model.network.dtype)
    layers = Counter(layer_devices(model.network, model.device))
    sizes = Counter({model.device: TREE_NODES * 4 * model.vocabulary})
    sizes.update({device: count * per_layer for device, count in layers.items()})
    return list(sizes.items())
