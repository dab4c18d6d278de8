"""What a model's config and tokenizer say of it, and what is wrong with that."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from adafuse.doctor.encoding import odd_spans
from adafuse.doctor.records import Finding, ModelFacts
from adafuse.engine.capacity import cache_bytes
from adafuse.errors import UserError
from adafuse.models.end_tokens import end_ids
from adafuse.models.loading import NO_LIMIT, context_length, load_config, load_tokenizer
from adafuse.models.prompts import start_ids
from adafuse.models.sources import ModelSource
from adafuse.pipeline.model_size import weight_bytes
from adafuse.text.surfaces import Surfaces

_INDEX = "model.safetensors.index.json"


def examine(source: ModelSource) -> tuple[ModelFacts, Surfaces | None, list[Finding]]:
    """Return what can be told of a model without its weights; surfaces if its tokens have some.

    Raises:
        UserError: it cannot be loaded at all.
    """
    config = load_config(source)
    _check_causal(config, source)
    tokenizer = load_tokenizer(source)
    surfaces, wrong = _surfaces(tokenizer, source.path)
    facts = _facts(source, config, tokenizer, surfaces is not None)
    return facts, surfaces, [*wrong, *_wrong(facts, tokenizer, source)]


def _check_causal(config: PreTrainedConfig, source: ModelSource) -> None:
    own_code = source.trust_remote_code and getattr(config, "auto_map", None)
    if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not own_code:
        raise UserError(
            f"model {source.path!r} is no causal language model ({config.model_type}); name one"
            " that continues texts"
        )


def _facts(
    source: ModelSource, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, exact: bool
) -> ModelFacts:
    dtype = str(source.dtype).removeprefix("torch.")
    text, context = config.get_text_config(), context_length(config)
    ends = end_ids(_generation(source, config), tokenizer, source.path)
    return ModelFacts(
        name=source.path,
        architecture=config.model_type,
        start=_token(tokenizer, start_ids(tokenizer)),
        ends=tuple(str(tokenizer.convert_ids_to_tokens(index)) for index in sorted(ends)),
        context=None if context == NO_LIMIT else context,
        chat_template=bool(getattr(tokenizer, "chat_template", None)),
        vocabulary=len(tokenizer),
        rows=text.vocab_size,
        surfaces=exact,
        odd_spans=tuple(odd_spans(tokenizer, source.path)),
        dtype=source.quantization or dtype,
        device=str(source.placement),
        weights=weight_bytes(source.path, source.revision, dtype, source.quantization),
        cache=_cache(config, source),
    )


def _generation(source: ModelSource, config: PreTrainedConfig) -> GenerationConfig:
    """Return what loading the network would come to: its own file, or what its config says."""
    factory: Any = GenerationConfig
    try:
        found: GenerationConfig = factory.from_pretrained(source.path, revision=source.revision)
    except OSError:
        found = factory.from_model_config(config)
    return found


def _cache(config: PreTrainedConfig, source: ModelSource) -> int | None:
    try:
        per_layer = cache_bytes(config, source.dtype)
    except AttributeError:  # no attention
        return None
    return per_layer * int(config.get_text_config().num_hidden_layers)


def _token(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str | None:
    return str(tokenizer.convert_ids_to_tokens(ids[0])) if ids else None


def _surfaces(
    tokenizer: PreTrainedTokenizerBase, name: str
) -> tuple[Surfaces | None, list[Finding]]:
    try:
        return Surfaces.read(tokenizer, name), []
    except UserError as error:
        return None, [Finding(False, str(error))]


def _wrong(
    facts: ModelFacts, tokenizer: PreTrainedTokenizerBase, source: ModelSource
) -> Iterator[Finding]:
    name = f"model {facts.name!r}"
    if facts.vocabulary > facts.rows:
        yield Finding(
            True,
            f"the tokenizer of {name} has {facts.vocabulary} tokens, its network only {facts.rows};"
            " give it the tokenizer that it was trained with",
        )
    if facts.odd_spans:
        odd = ", ".join(map(repr, facts.odd_spans))
        yield Finding(
            False,
            f"{name} does not give back {odd} as it stands, so that it judges another text than the"
            " others wrote; use a tokenizer that keeps every character",
        )
    start = tokenizer.bos_token
    if facts.start is None and start is not None and start not in facts.ends:
        yield Finding(
            False,
            f"{name} names a start token {start!r}, but its tokenizer does not put it before a"
            " text; set add_bos_token in its tokenizer_config.json if it was trained with it",
        )
    yield from _wrong_weights(facts, source)


def _wrong_weights(facts: ModelFacts, source: ModelSource) -> Iterator[Finding]:
    folder = Path(source.path)
    if facts.cache is None:
        yield Finding(
            False,
            f"model {facts.name!r} ({facts.architecture}) has no attention as the tree engine knows"
            " it: it runs on the slower reference engine, and its memory is not estimated",
        )
    files = _indexed(folder)
    if files is None:
        yield Finding(
            True,
            f"the file {_INDEX!r} of model {facts.name!r} does not say which files hold its"
            " weights; download it again",
        )
    elif missing := sorted(name for name in files if not (folder / name).is_file()):
        more = f", and {len(missing) - 1} others" if len(missing) > 1 else ""
        yield Finding(
            True,
            f"model {facts.name!r} lacks the file {missing[0]!r} of its weights{more}; download it"
            " again",
        )
    elif facts.weights is None and folder.is_dir():
        yield Finding(
            True, f"model {facts.name!r} has no weights that can be read; download it again"
        )
    elif facts.weights is None:
        yield Finding(
            False, f"the weights of model {facts.name!r} are not here yet; they will be downloaded"
        )


def _indexed(folder: Path) -> set[str] | None:
    """Return the files that a model's index of its weights names; None if it cannot be read."""
    index = folder / _INDEX
    if not index.is_file():
        return set()
    try:
        return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
