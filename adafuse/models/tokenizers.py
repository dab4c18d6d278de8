"""Tokenizers as their tokenizer.json says, whatever class of transformers is named beside it.

Also the generation config, of which AdaFuse reads the end tokens.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    TokenizersBackend,
)
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER
from transformers.utils import GENERATION_CONFIG_NAME
from transformers.utils.hub import cached_file

from adafuse.errors import UserError
from adafuse.models.adapters import warn_of_template
from adafuse.models.files import local_path
from adafuse.models.gguf_file import tokenizer_settings
from adafuse.models.hub import checking_values, explaining_failure, from_hub
from adafuse.models.spec import ModelEntry
from adafuse.tokenization.prompts import check_chat, check_variables

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")


def load_tokenizer(spec: ModelEntry) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model; a folder without one is refused.

    Classes of transformers build their own pre-tokenizer, normalizer, decoder and added tokens
    around the vocabulary of a tokenizer.json. All of that is taken from the file instead; of the
    class remain the special tokens that it names. Code that comes with a model is left alone.
    """
    folder = Path(spec.path)
    if folder.is_dir() and not any(folder.glob("tokenizer*")):
        raise UserError(
            f"model {spec.path!r} has no tokenizer; put its tokenizer.json into the folder"
        )
    with checking_values(spec, "tokenizer"):
        tokenizer = _read(spec)
    if isinstance(template := getattr(tokenizer, "chat_template", None), str):
        tokenizer.chat_template = template.removeprefix("\ufeff")  # a mark of the file's encoding
    if spec.adapter is not None:
        warn_of_template(spec.adapter, template)
    tokenizer.model_max_length = VERY_LARGE_INTEGER  # what is too long, we refuse ourselves
    if spec.chat is True or (spec.chat and getattr(tokenizer, "chat_template", None)):
        check_chat(tokenizer, spec.path)
    check_variables(tokenizer, spec.path, spec.chat_template_kwargs or {})
    return tokenizer


def _read(spec: ModelEntry) -> PreTrainedTokenizerBase:
    tokenizer: PreTrainedTokenizerBase | None = None
    try:
        settings, whole_words = tokenizer_settings(spec)
        tokenizer = from_hub(AutoTokenizer, spec, **settings)
        if whole_words:
            tokenizer.backend_tokenizer.model.ignore_merges = True
    except Exception as error:
        if spec.source[1] is not None and not isinstance(error, UserError):
            raise UserError(
                f"the tokenizer in the GGUF file of model {spec.path!r} cannot be read ({error});"
                " download it again, or name the folder of the model"
            ) from error
        content = _content(spec)
        if isinstance(error, UserError) or content is None:
            raise
    else:
        content = _content(spec)
    if content is not None and (tokenizer is None or _is_of_transformers(tokenizer)):
        tokenizer = _as_in_file(spec, content, tokenizer)
    assert tokenizer is not None
    _without_chance(tokenizer, spec)
    return tokenizer


def _without_chance(tokenizer: PreTrainedTokenizerBase, spec: ModelEntry) -> None:
    """Switch off, or refuse, what is left from training and makes each encoding another one."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and getattr(backend.model, "dropout", None):
        backend.model.dropout = None
    settings = getattr(tokenizer, "sp_model_kwargs", None) or {}
    if hasattr(tokenizer, "sp_model") and settings.get("enable_sampling"):
        raise UserError(
            f"the tokenizer of model {spec.path!r} encodes a text at random (enable_sampling in"
            " sp_model_kwargs); remove that from its tokenizer_config.json"
        )


def _is_of_transformers(tokenizer: PreTrainedTokenizerBase) -> bool:
    return type(tokenizer).__module__.startswith("transformers.models.") or (
        type(tokenizer) is TokenizersBackend
    )


def _content(spec: ModelEntry) -> dict[str, Any] | None:
    """Return what the tokenizer.json of a model says; None if there is none."""
    folder = local_path(spec.path, spec.revision)
    file = None if folder is None else folder / "tokenizer.json"
    if file is None or not file.is_file():
        return None
    try:
        Tokenizer.from_file(str(file))
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except Exception as error:  # noqa: BLE001 - the library raises no class of its own
        raise UserError(
            f"the tokenizer.json of model {spec.path!r} cannot be read ({error}); download it again"
        ) from None
    return content


def _as_in_file(
    spec: ModelEntry, content: dict[str, Any], given: PreTrainedTokenizerBase | None
) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a file, with the special tokens that the `given` one names."""
    configured = {} if given is None else given.init_kwargs.get("added_tokens_decoder", {})
    ids = {token["content"]: token["id"] for token in content["added_tokens"]}
    ids = {str(token): int(number) for number, token in configured.items()} | ids
    if type(given) is TokenizersBackend and not _misplaced(given, ids):
        return given
    if isinstance(vocabulary := content["model"].get("vocab"), dict):
        # Otherwise a token is added after as many ids as there are tokens, which gaps make wrong.
        vocabulary |= {token: number for token, number in ids.items() if token not in vocabulary}
    backend = Tokenizer.from_str(json.dumps(content))
    tokenizer: PreTrainedTokenizerBase = from_hub(TokenizersBackend, spec, tokenizer_object=backend)
    if wrong := _misplaced(tokenizer, ids):
        raise UserError(
            f"token {wrong[0]!r} of model {spec.path!r} has id {ids[wrong[0]]} in its files, which"
            f" its vocabulary leaves no place for; give the model a tokenizer.json of its own"
        )
    known = tokenizer.get_added_vocab()
    for name in _NAMED:
        token = getattr(given, name, None)
        if getattr(tokenizer, name) is None and str(token) in known:
            setattr(tokenizer, name, token)
    return tokenizer


def _misplaced(tokenizer: PreTrainedTokenizerBase, ids: Mapping[str, int]) -> list[str]:
    known = tokenizer.get_vocab()
    return [token for token, number in ids.items() if known.get(token) != number]


def generation_config(spec: ModelEntry, config: PreTrainedConfig) -> GenerationConfig:
    """Return the generation config of a model; without a file, what its config makes of it.

    Raises:
        UserError: the file cannot be read, or its end tokens are not numbers.
    """
    if (file := _generation_file(spec)) is None:
        return GenerationConfig.from_model_config(config)
    named = f"the {GENERATION_CONFIG_NAME} of model {spec.path!r}"
    try:
        made = GenerationConfig.from_dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UserError(f"{named} cannot be read ({reason}); download it again") from error
    ends = made.eos_token_id
    numbers = ends if isinstance(ends, list) else [ends]
    if ends is not None and not all(type(number) is int for number in numbers):
        raise UserError(f"{named} has eos_token_id {ends!r}; write a number, or a list of numbers")
    return made


def _generation_file(spec: ModelEntry) -> Path | None:
    """Return the file, which may be broken; None if there is none, or none here and no hub."""
    source, gguf_file = spec.source
    file = Path(source, GENERATION_CONFIG_NAME)
    if gguf_file is not None:
        return None
    if os.path.lexists(file):
        return file
    with explaining_failure(spec):
        cached = cached_file(
            source,
            GENERATION_CONFIG_NAME,
            revision=spec.revision,
            _raise_exceptions_for_missing_entries=False,
        )
    return None if cached is None else Path(cached)
