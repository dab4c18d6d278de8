"""What would go wrong with some models, found without loading their weights."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from adafuse.errors import UserError
from adafuse.models.capacity import MOST_ROWS, SHARE, TREE_NODES, cache_bytes
from adafuse.models.files import weight_bytes
from adafuse.models.findings import DeviceLoad, Finding, ModelFacts, Overlap, Report
from adafuse.models.installation import look_around
from adafuse.models.language_model import end_ids
from adafuse.models.loading import NO_LIMIT, context_length, load_config, load_tokenizer
from adafuse.models.memory import free_memory
from adafuse.models.placement import ModelSource, Placement
from adafuse.tokenization.added_text import anchor
from adafuse.tokenization.foreign_spans import SpanEncoder
from adafuse.tokenization.prompts import start_ids
from adafuse.tokenization.token_bytes import Surfaces

SPANS = (
    " word",
    "word",
    "\n",
    "\nline",
    "  two",
    "\ttab",
    " 12,345",
    " Straße",
    " 漢字",
    " 🙂",
    " it's",
)
"""Words with what comes before them, numbers, other scripts, several bytes a character."""
_BEFORE = "Answer"


def odd_spans(tokenizer: PreTrainedTokenizerBase, name: str) -> list[str]:
    """Return those of `SPANS` that come back as another text, or cannot be encoded at all."""
    encode, place = SpanEncoder(tokenizer, name), anchor(tokenizer, tokenizer(_BEFORE)["input_ids"])
    odd = []
    for span in SPANS:
        try:
            exact = place.added(encode(span)) == span
        except ValueError:  # it merges the span with what is before it
            exact = False
        if not exact:
            odd.append(span)
    return odd


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


_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples at a time (None: as many as fit), and the tokens of a prompt and of an answer."""

    rows: int | None
    prompt_tokens: int
    max_new_tokens: int


def device_loads(models: Sequence[tuple[ModelFacts, Placement]], batch: Batch) -> list[DeviceLoad]:
    """Return what each device has to hold; a model that is spread takes the same of each."""
    weights: dict[torch.device, float] = defaultdict(float)
    per_row: dict[torch.device, float] = defaultdict(float)
    for facts, placement in models:
        if facts.weights is None or facts.cache is None:
            continue
        longest = batch.prompt_tokens + batch.max_new_tokens
        slots = min(longest, facts.context or longest) + TREE_NODES
        for device in placement.devices:
            weights[device] += facts.weights / len(placement.devices)
            per_row[device] += slots * facts.cache / len(placement.devices)
        per_row[placement.first] += TREE_NODES * 4 * facts.vocabulary
    return [_load(device, weights[device], per_row[device], batch.rows) for device in weights]


def wrong_with(
    loads: Sequence[DeviceLoad], models: Sequence[tuple[ModelFacts, Placement]]
) -> Iterator[Finding]:
    """Say what does not fit on the devices that these models are on."""
    for load in loads:
        there = [facts for facts, place in models if load.device in map(str, place.devices)]
        names = " and ".join(facts.name for facts in there)
        free = f"{load.free / _GIB:.2f} GiB are free on {load.device}"
        if load.weights > load.free:
            yield Finding(
                True,
                f"the weights of {names} take {load.weights / _GIB:.2f} GiB, and {free}; use other"
                " or more devices (--device balanced), a smaller --dtype, or --quantization",
            )
        elif load.fits < max(1, load.rows):
            yield Finding(True, _too_many(load, free))


def _too_many(load: DeviceLoad, free: str) -> str:
    needed = load.weights + max(1, load.rows) * load.per_row
    fix = f"use --batch-size {load.fits}" if load.fits else "lower --max-new-tokens"
    return (
        f"{max(1, load.rows)} examples at a time and the weights take {needed / _GIB:.2f} GiB, and"
        f" {free}, of which some stays for the rest; {fix}, or other or more devices"
    )


def _load(device: torch.device, weights: float, per_row: float, rows: int | None) -> DeviceLoad:
    free = free_memory(device)
    room = max(0, int(SHARE * (free - weights) / per_row)) if per_row else MOST_ROWS
    return DeviceLoad(
        str(device),
        free,
        int(weights),
        int(per_row),
        min(room, MOST_ROWS) if rows is None else rows,
        room,
    )


_FEW = 1.0
"""Percent."""


def overlaps(surfaces: Mapping[str, Surfaces]) -> list[Overlap]:
    """Compare all pairs of vocabularies by the bytes of their tokens."""
    written = {name: set(each.ids) for name, each in surfaces.items()}
    return [_overlap(one, other, written[one], written[other]) for one, other in _pairs(written)]


def wrong_overlaps(found: list[Overlap]) -> Iterator[Finding]:
    """Warn of vocabularies that have next to nothing in common."""
    for each in found:
        if max(each.percent) < _FEW:
            first, second = each.models
            yield Finding(
                False,
                f"{first!r} and {second!r} have only {each.shared} tokens in common; use a method"
                " that fuses words, or bytewise",
            )


def _pairs(written: Mapping[str, set[bytes]]) -> Iterator[tuple[str, str]]:
    return combinations(written, 2)


def _overlap(one: str, other: str, first: set[bytes], second: set[bytes]) -> Overlap:
    shared = len(first & second)
    percent = (100 * shared / max(1, len(first)), 100 * shared / max(1, len(second)))
    return Overlap((one, other), shared, percent)


T = TypeVar("T")
Sources = Callable[[], list[ModelSource]]


def examination(wanted: Sources, anyway: Sources, batch: Batch) -> Report:
    """Look at the installation, and at some models without loading their weights.

    Args:
        wanted: returns where the models come from; what it refuses becomes a problem.
        anyway: the same as far as any machine can have it, for when it refuses something; nothing
            is said of memory then.
        batch: what is to be decoded at a time.
    """
    installation, findings = look_around()
    models: list[tuple[ModelFacts, Placement]] = []
    surfaces: dict[str, Surfaces] = {}
    chosen = _told(findings, wanted)
    for source in (_told([], anyway) or []) if chosen is None else chosen:
        if (found := _told(findings, partial(examine, source))) is None:
            continue
        facts, exact, wrong = found
        models.append((facts, source.placement))
        findings += [*wrong, *_too_long(facts, batch)]
        if exact is not None:
            surfaces[facts.name] = exact
    loads = [] if chosen is None else device_loads(models, batch)
    common = overlaps(surfaces)
    findings += [*wrong_overlaps(common), *wrong_with(loads, models)]
    return Report(
        installation,
        tuple(facts for facts, _ in models),
        tuple(common),
        tuple(loads),
        tuple(findings),
    )


def _told(findings: list[Finding], call: Callable[[], T]) -> T | None:
    """Return what a call returns; what it refuses becomes a problem."""
    try:
        return call()
    except UserError as error:
        findings.append(Finding(True, str(error)))
        return None


def _too_long(facts: ModelFacts, batch: Batch) -> Iterator[Finding]:
    longest = batch.prompt_tokens + batch.max_new_tokens
    if facts.context is not None and longest > facts.context:
        yield Finding(
            True,
            f"{batch.prompt_tokens} tokens of a prompt and {batch.max_new_tokens} new ones are more"
            f" than the {facts.context} positions of model {facts.name!r}; lower --max-new-tokens"
            " or shorten the prompts",
        )
