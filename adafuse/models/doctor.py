"""What would go wrong with some models, found without loading their weights."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from adafuse.errors import ExampleError, UserError
from adafuse.models.files import check_whole, weight_bytes
from adafuse.models.gguf_file import gguf_ends
from adafuse.models.installation import Finding, Installation, look_around, problem, warning
from adafuse.models.language_model import (
    NO_LIMIT,
    check_rows,
    check_weights,
    connected,
    context_length,
    load_config,
    plain_ids,
    too_few_tokens,
)
from adafuse.models.memory import MOST_ROWS, SHARE, TREE_NODES, cache_bytes, free_memory
from adafuse.models.placement import device_names, resolved
from adafuse.models.positions import RopeLengths, unknown_attention
from adafuse.models.quantization import dequantized_bytes, kind_of
from adafuse.models.spec import ModelSpec
from adafuse.models.tokenizers import generation_config, load_tokenizer
from adafuse.models.wrappers import is_wrapper
from adafuse.servers.probe import probe
from adafuse.tokenization.prompts import ids_if_any, start_ids, started
from adafuse.tokenization.text import SPECIAL, ModelTokenizer, anchor, end_ids, span_encoder
from adafuse.tokenization.thoughts import ASKED, Thinking, shared_thoughts
from adafuse.tokenization.token_bytes import id_count

_WORDS = (" word", "word", "\n", "\nline", "  two", "\ttab", " it's")
SPANS = (*_WORDS, " 12,345", " Straße", " 漢字", " 🙂")
"""Words with what comes before them, numbers, other scripts, several bytes a character."""

_GIB = 1 << 30
_FEW = 1.0  # percent of tokens in common
_SMALL = 1024  # positions


@dataclass(frozen=True, slots=True)
class Load:
    """Examples at a time (None: as many as fit), and the tokens of a prompt and of an answer."""

    rows: int | None
    prompt_tokens: int
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model by its config and tokenizer.

    `start` and `ends` are tokens, each end with where it is named; `other_ends` are other special
    tokens. `thoughts` says whether it thinks, None: nothing in its chat template does. `rows` are
    those of the output layer. `token_bytes` says whether the bytes of each token are certain;
    `odd_spans` are texts that do not come back. The bytes of the `weights` (None: not here) and of
    a token's `cache` (None: no attention) are estimates. `served` is what was seen of a model's
    server.
    """

    name: str
    architecture: str
    start: str | None
    ends: dict[str, str]
    other_ends: tuple[str, ...]
    context: int | None
    chat_template: bool
    thoughts: Thinking | None
    vocabulary: int
    rows: int
    token_bytes: bool
    odd_spans: tuple[str, ...]
    dtype: str
    device: str
    weights: int | None
    cache: int | None
    served: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Overlap:
    """Tokens that two models write with the same bytes, and their percentage of each vocabulary."""

    models: tuple[str, str]
    shared: int
    percent: tuple[float, float]


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """Bytes that models and a batch take on a device; `fits` is how many examples have room."""

    device: str
    free: int
    weights: int
    per_row: int
    rows: int
    fits: int


@dataclass(frozen=True, slots=True)
class Report:
    installation: Installation
    models: tuple[ModelFacts, ...]
    overlaps: tuple[Overlap, ...]
    loads: tuple[DeviceLoad, ...]
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        return not any(finding.problem for finding in self.findings)


def examination(specs: Sequence[ModelSpec], batch: Load) -> Report:
    """Look at the installation, and at some models without loading their weights.

    If a device or quantization cannot be had here, that is a problem, nothing is said of memory,
    and the models are looked at as a CPU has them.
    """
    installation, findings = look_around()
    try:
        placed, fits_here = resolved(specs), True
    except UserError as error:
        findings.append(problem(str(error)))
        anywhere = {"device": "cpu", "dtype": "float32", "quantization": None}
        placed, fits_here = [spec.model_copy(update=anywhere) for spec in specs], False
    models: list[ModelFacts] = []
    readers: list[ModelTokenizer] = []
    for spec in placed:
        try:
            facts, reader, wrong = _examine(spec, batch)
        except (UserError, ExampleError) as error:
            findings.append(problem(str(error)))
            continue
        models.append(facts)
        readers.append(reader)
        findings += wrong
    exact = [each for each, facts in zip(readers, models, strict=True) if facts.token_bytes]
    vocabularies = {reader.name: set(reader.token_bytes.ids) for reader in exact}
    findings += _unlike_thoughts(readers)
    loads = _device_loads(models, batch) if fits_here else []
    overlaps = _overlaps(vocabularies)
    for overlap in overlaps:
        if max(overlap.percent) < _FEW:
            few = f"{' and '.join(map(repr, overlap.models))} have only {overlap.shared} tokens"
            fix = "use a method that fuses words, or bytewise"
            findings.append(warning(f"{few} in common; {fix}"))
    findings += wrong_with(loads, models)
    return Report(installation, tuple(models), tuple(overlaps), tuple(loads), tuple(findings))


def _examine(spec: ModelSpec, batch: Load) -> tuple[ModelFacts, ModelTokenizer, list[Finding]]:
    """Return what can be told of a model without its weights, and its tokenizer."""
    config = load_config(spec)
    own_code = spec.trust_remote_code and getattr(config, "auto_map", None)
    known = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or is_wrapper(config)
    if not known and not own_code:
        raise UserError(
            f"model {spec.path!r} is not a causal language model ({config.model_type}); name one"
            " that continues texts"
        )
    tokenizer, wrong, exact = load_tokenizer(spec), [], True
    reader = _reader(spec, config, tokenizer)
    try:
        reader.token_bytes  # noqa: B018 - it is read here, and kept
    except UserError as error:
        wrong.append(warning(str(error)))
        exact = False
    facts = _facts(spec, config, reader, exact)
    wrong += _wrong_network(facts, spec, config) if spec.server is None else ()
    try:
        check_rows(tokenizer, config, spec.path)
    except UserError as error:
        if not any(finding.problem for finding in wrong):  # which may be the reason
            wrong.append(problem(str(error)))
    if spec.server is None:
        wrong += _slow_attention(config, facts, batch)
    else:
        model = connected(spec, config, tokenizer)
        lines = list(probe(model.server, plain_ids(tokenizer)))
        wrong += [
            problem(f"the server {spec.server} {line.problem}") for line in lines if line.problem
        ]
        served = tuple(line.text for line in lines)
        facts = replace(
            facts, context=model.context, weights=None, device=spec.server, served=served
        )
    wrong += [*_wrong_tokenizer(facts, tokenizer), *_small_context(facts, batch)]
    return facts, reader, wrong


def _reader(
    spec: ModelSpec, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> ModelTokenizer:
    marks, named = spec.thoughts or {}, gguf_ends(spec.path, spec.revision)
    generation = generation_config(spec, config)
    return ModelTokenizer(
        name=spec.path,
        tokenizer=tokenizer,
        end_ids=end_ids(config, generation, tokenizer, spec.path, named, marks),
        chat=bool(spec.chat and getattr(tokenizer, "chat_template", None)),
        chat_date=spec.chat_date,
        chat_template_kwargs=spec.chat_template_kwargs or {},
        thoughts=marks,
    )


def _unlike_thoughts(models: Sequence[ModelTokenizer]) -> Iterator[Finding]:
    """Say if models cannot write one text because some think before they answer."""
    for prompt in ("A", ASKED) if len(models) > 1 else ():
        ids = [ids_if_any(model.prompt_ids, prompt) for model in models]
        try:
            if all(ids):
                shared_thoughts(models, prompt, ids)
        except UserError as error:
            yield problem(str(error)) if prompt == "A" else warning(f"in conversations, {error}")
            return


def _facts(
    spec: ModelSpec, config: PreTrainedConfig, reader: ModelTokenizer, exact: bool
) -> ModelFacts:
    tokenizer, text, context = reader.tokenizer, config.get_text_config(), context_length(config)
    try:
        cache = cache_bytes(config, getattr(torch, spec.dtype)) * int(text.num_hidden_layers)
    except AttributeError:  # no attention
        cache = None
    dense, kind = None, kind_of(config)
    if kind is not None and spec.server is None:
        dense = dequantized_bytes(spec, config)
        kind = f"{kind} in files, {spec.dtype} in memory" if dense else kind
    ends = reader.end_ids.items()
    tokens = [(str(tokenizer.convert_ids_to_tokens(i)), source) for i, source in ends]
    return ModelFacts(
        name=spec.path,
        architecture=config.model_type,
        start=next(map(str, tokenizer.convert_ids_to_tokens(start_ids(tokenizer))), None),
        ends={token: source for token, source in tokens if source != SPECIAL},
        other_ends=tuple(token for token, source in tokens if source == SPECIAL),
        context=None if context == NO_LIMIT else context,
        chat_template=bool(getattr(tokenizer, "chat_template", None)),
        thoughts=Thinking.of(reader),
        vocabulary=id_count(tokenizer),
        rows=text.vocab_size,
        token_bytes=exact,
        odd_spans=tuple(odd_spans(tokenizer, spec.path)),
        dtype=spec.quantization or kind or spec.dtype,
        device=device_names(spec),
        weights=dense or weight_bytes(spec.path, spec.revision, spec.dtype, spec.quantization),
        cache=cache,
    )


def odd_spans(tokenizer: PreTrainedTokenizerBase, name: str) -> list[str]:
    """Return those of `SPANS` that come back as another text, or cannot be encoded at all."""
    encode = span_encoder(tokenizer, name)
    place = anchor(tokenizer, started(tokenizer, "Answer"))
    odd = []
    for span in SPANS:
        with suppress(ValueError):  # the tokenizer merges the span with what is before it
            if place.added(encode(span)) == span:
                continue
        odd.append(span)
    return odd


def _wrong_tokenizer(facts: ModelFacts, tokenizer: PreTrainedTokenizerBase) -> Iterator[Finding]:
    name = f"model {facts.name!r}"
    if (few := too_few_tokens(facts.vocabulary, facts.rows, facts.name)) is not None:
        yield warning(few)
    if facts.odd_spans:
        odd = ", ".join(map(repr, facts.odd_spans))
        yield warning(
            f"{name} does not give back {odd} as it stands, so that it judges another text than the"
            " others wrote; use a tokenizer that keeps every character"
        )
    if ordinary := [token for token in facts.ends if not _is_control(tokenizer, token)]:
        yield warning(
            f"{name} ends its texts at {ordinary[0]!r}, an ordinary token; correct eos_token_id in"
            " its generation_config.json if it was not trained so"
        )
    start = tokenizer.bos_token
    turns = str(tokenizer.chat_template or "")  # whose marks may begin a text, too
    if facts.start is None and start and start not in facts.ends and start not in turns:
        yield warning(
            f"{name} names a start token {start!r}, but its tokenizer does not put it before a"
            " text; if it was trained with it, add it to post_processor in its tokenizer.json"
            " (transformers ignores add_bos_token beside that file)"
        )


def _is_control(tokenizer: PreTrainedTokenizerBase, token: str) -> bool:
    return token in {*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()}


def _wrong_network(
    facts: ModelFacts, spec: ModelSpec, config: PreTrainedConfig
) -> Iterator[Finding]:
    name, folder = f"model {facts.name!r}", Path(facts.name)
    if facts.cache is None:
        yield warning(
            f"{name} ({facts.architecture}) has no attention, so its memory is not estimated; with"
            " batch_size auto it is counted before decoding"
        )
    if is_wrapper(config):
        yield warning(
            f"{name} ({facts.architecture}) also reads images; whether it can write without them is"
            " checked when it is loaded"
        )
    try:
        check_whole(facts.name, None)
        if facts.weights is not None:
            check_weights(spec, config)
        elif folder.is_dir():
            yield problem(f"{name} has no weights that can be read; download it again")
        else:
            yield warning(f"the weights of {name} are not here yet; they will be downloaded")
    except UserError as error:
        yield problem(str(error))


def _small_context(facts: ModelFacts, batch: Load) -> Iterator[Finding]:
    name = f"model {facts.name!r}"
    if facts.context is not None and batch.prompt_tokens + batch.max_new_tokens > facts.context:
        needed = f"{batch.prompt_tokens} tokens of a prompt and {batch.max_new_tokens} new ones are"
        few = f"{needed} more than the {facts.context} positions of {name}"
        if facts.context < _SMALL:
            yield warning(f"{few}, which is small; prompts may be too long for it")
        else:
            yield problem(f"{few}; lower --max-new-tokens or shorten the prompts")


def _slow_attention(config: PreTrainedConfig, facts: ModelFacts, batch: Load) -> Iterator[Finding]:
    name, slow = f"model {facts.name!r}", "the slower reference engine"
    if facts.cache is not None and (limit := unknown_attention(config)) is not None:
        yield warning(
            f"{name} has layers or limits of its own ({limit}): it runs on the cache that"
            f" transformers makes, or on {slow} if that is not exact"
        )
    border = RopeLengths.of(config).border
    if batch.prompt_tokens + batch.max_new_tokens > border:
        yield warning(
            f"{name} has other rotary factors for texts of more than {border} tokens: {slow} runs"
            " what is longer; shorten the prompts if that takes too long"
        )


def _overlaps(vocabularies: dict[str, set[bytes]]) -> list[Overlap]:
    overlaps = []
    for pair in combinations(vocabularies, 2):
        shared = len(vocabularies[pair[0]] & vocabularies[pair[1]])
        first, second = (100 * shared / max(1, len(vocabularies[name])) for name in pair)
        overlaps.append(Overlap(pair, shared, (first, second)))
    return overlaps


def _device_loads(models: Sequence[ModelFacts], batch: Load) -> list[DeviceLoad]:
    """Return what each device has to hold; a model that is spread takes the same of each."""
    weights, per_row = defaultdict[str, float](float), defaultdict[str, float](float)
    longest = batch.prompt_tokens + batch.max_new_tokens
    for facts in models:
        if facts.weights is None or facts.cache is None:
            continue
        devices = facts.device.split("+")
        slots = min(longest, facts.context or longest) + TREE_NODES
        for device in devices:
            weights[device] += facts.weights / len(devices)
            per_row[device] += slots * facts.cache / len(devices)
        per_row[devices[0]] += TREE_NODES * 4 * facts.vocabulary
    loads = []
    for device, size in weights.items():
        free = free_memory(torch.device(device))
        one = per_row[device]
        fits = max(0, int(SHARE * (free - size) / one)) if one else MOST_ROWS
        rows = min(fits, MOST_ROWS) if batch.rows is None else batch.rows
        loads.append(DeviceLoad(device, free, int(size), int(one), rows, fits))
    return loads


def wrong_with(loads: Sequence[DeviceLoad], models: Sequence[ModelFacts]) -> Iterator[Finding]:
    for load in loads:
        names = " and ".join(m.name for m in models if load.device in m.device.split("+"))
        free = f"{load.free / _GIB:.2f} GiB are free on {load.device}"
        rows = max(1, load.rows)
        if load.weights > load.free:
            yield problem(
                f"the weights of {names} take {load.weights / _GIB:.2f} GiB, and {free}; use other"
                " or more devices (--device balanced), a smaller --dtype, or --quantization"
            )
        elif load.fits < rows:
            needed = (load.weights + rows * load.per_row) / _GIB
            fix = f"use --batch-size {load.fits}" if load.fits else "lower --max-new-tokens"
            yield problem(
                f"{rows} examples at a time and the weights take {needed:.2f} GiB, and {free}, of"
                f" which some stays for the rest; {fix}, or other or more devices"
            )
