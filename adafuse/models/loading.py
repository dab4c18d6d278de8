"""Loading models: everything that can be refused is refused before the first weights are read."""

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as hf_logging

from adafuse.errors import UserError
from adafuse.models.devices import devices, dtype_of
from adafuse.models.end_tokens import end_ids, special_ids
from adafuse.models.language_model import LanguageModel
from adafuse.models.prompts import check_chat

logger = logging.getLogger(__name__)

_NO_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where one model comes from: a folder or hub id, and how it is loaded and prompted."""

    path: str
    revision: str | None
    device: torch.device
    dtype: torch.dtype
    chat: bool


def sources(
    paths: Sequence[str],
    *,
    revisions: Sequence[str | None] | None,
    device: str | Sequence[str],
    dtype: str,
    chat: bool | Sequence[bool],
) -> list[ModelSource]:
    """Combine the settings of all models, one source each."""
    count = len(paths)
    chats = [chat] * count if isinstance(chat, bool) else list(chat)
    pins = list(revisions) if revisions is not None else [None] * count
    for values, what in ((pins, "revisions"), (chats, "chat settings")):
        if len(values) != count:
            raise UserError(f"{len(values)} {what} for {count} models; give one per model")
    return [
        ModelSource(path, pin, place, dtype_of(dtype, place), wants_chat)
        for path, pin, place, wants_chat in zip(
            paths, pins, devices(device, count), chats, strict=True
        )
    ]


def load_models(wanted: Sequence[ModelSource]) -> list[LanguageModel]:
    """Load all models; the configs and tokenizers of all are checked before any weights."""
    if not sys.stderr.isatty():
        hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    checked = [(source, _config(source), load_tokenizer(source)) for source in wanted]
    return [_load(*parts) for parts in checked]


def _load(
    source: ModelSource, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> LanguageModel:
    logger.info("loading %s as %s on %s", source.path, source.dtype, source.device)
    network = from_hub(
        AutoModelForCausalLM, source, config=config, dtype=source.dtype, use_safetensors=True
    )
    network = network.to(source.device).eval()
    ends = end_ids(network, tokenizer, source.path)
    return LanguageModel(
        name=source.path,
        network=network,
        tokenizer=tokenizer,
        end_ids=frozenset(ends),
        stop_ids=frozenset(ends | special_ids(tokenizer)),
        context=_context(config),
        chat=source.chat,
    )


def _config(source: ModelSource) -> PreTrainedConfig:
    check_path(source.path)
    config = from_hub(AutoConfig, source)
    if config.is_encoder_decoder:
        raise UserError(
            f"model {source.path!r} is an encoder-decoder ({config.model_type}); fused decoding"
            " needs causal language models"
        )
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


def check_path(path: str) -> None:
    """Tell a folder that is missing from a hub id, so that nobody waits for a download."""
    folder = Path(path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(f"model {path!r} has no config.json; give a Hugging Face model folder")
        return
    looks_local = path.startswith((".", "/", "~")) or path.count("/") != 1 or folder.exists()
    if looks_local:
        raise UserError(f"model {path!r} is not a folder; give a model folder or a hub id org/name")


def from_hub(factory: Any, source: ModelSource, **settings: Any) -> Any:
    """Load something of a model without running its code; what fails becomes one sentence."""
    try:
        return factory.from_pretrained(
            source.path, revision=source.revision, trust_remote_code=False, **settings
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = str(error).strip().split("\n")[0]
        where = "" if Path(source.path).is_dir() else ", which is no folder here,"
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        raise UserError(
            f"model {source.path!r}{where} cannot be loaded{offline}: {reason}"
        ) from error


def _context(config: PreTrainedConfig) -> int:
    text = config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"):
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return _NO_LIMIT
