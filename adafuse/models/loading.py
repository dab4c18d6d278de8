"""Loading models: everything that can be refused is refused before the first weights are read."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as hf_logging

from adafuse.errors import UserError
from adafuse.models.files import check_pickled
from adafuse.models.hub import check_path, from_hub
from adafuse.models.language_model import LanguageModel, end_ids, special_ids
from adafuse.models.placement import (
    ModelSource,
    check_packable,
    check_unquantized,
    quantization_config,
)
from adafuse.models.spread import device_map
from adafuse.tokenization.prompts import check_chat

logger = logging.getLogger(__name__)

NO_LIMIT = 1 << 30


def load_models(wanted: Sequence[ModelSource]) -> list[LanguageModel]:
    """Load all models; the configs and tokenizers of all are checked before any weights.

    Models that are spread come last, into the memory that the others leave.
    """
    if not sys.stderr.isatty():
        hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    checked = [(source, load_config(source), load_tokenizer(source)) for source in wanted]
    order = sorted(range(len(wanted)), key=lambda number: wanted[number].placement.spread)
    loaded = {number: _load(*checked[number]) for number in order}
    return [loaded[number] for number in range(len(wanted))]


def _load(
    source: ModelSource, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> LanguageModel:
    network = _network(source, config)
    ends = end_ids(network.generation_config, tokenizer, source.path)
    return LanguageModel(
        name=source.path,
        network=network,
        tokenizer=tokenizer,
        end_ids=frozenset(ends),
        stop_ids=frozenset(ends | special_ids(tokenizer)),
        context=context_length(config),
        chat=source.chat,
    )


def _network(source: ModelSource, config: PreTrainedConfig) -> PreTrainedModel:
    kind = source.quantization or source.dtype
    logger.info("loading %s as %s on %s", source.path, kind, source.placement)
    try:
        network = from_hub(
            AutoModelForCausalLM,
            source,
            config=config,
            dtype=source.dtype,
            # None prefers them where there are both.
            use_safetensors=None if source.allow_pickle else True,
            device_map=device_map(source, config),
            quantization_config=quantization_config(source.quantization),
        )
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"model {source.path!r} does not fit on {source.placement}; spread it over several"
            " devices (device: balanced), or use a smaller dtype or quantization"
        ) from error
    check_packable(network, source.quantization, source.path)
    return network.eval()  # type: ignore[no-any-return]


def load_config(source: ModelSource) -> PreTrainedConfig:
    """Load the config of a model, and refuse what cannot be decoded with.

    Raises:
        UserError: no causal language model, or weights that may not be read.
    """
    check_path(source.path)
    check_pickled(source.path, allowed=source.allow_pickle)
    config = from_hub(AutoConfig, source)
    if config.is_encoder_decoder:
        raise UserError(
            f"model {source.path!r} is an encoder-decoder ({config.model_type}); fused decoding"
            " needs causal language models"
        )
    check_unquantized(config, source.quantization, source.path)
    return config  # type: ignore[no-any-return]


def load_tokenizer(source: ModelSource) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model; a folder without one is refused."""
    folder = Path(source.path)
    if folder.is_dir() and not any(folder.glob("tokenizer*")):
        raise UserError(
            f"model {source.path!r} has no tokenizer; put its tokenizer.json into the folder"
        )
    tokenizer: PreTrainedTokenizerBase = from_hub(AutoTokenizer, source)
    if source.chat:
        check_chat(tokenizer, source.path)
    return tokenizer


def context_length(config: PreTrainedConfig) -> int:
    """Return the number of positions that a config names; a very large one if it names none."""
    text = config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"):
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return NO_LIMIT
