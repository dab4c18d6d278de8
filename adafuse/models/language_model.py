"""Language models and how they are loaded: what can be refused is refused before any weights."""

import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import nn
from transformers import (
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as hf_logging

from adafuse.errors import ExampleError, UserError
from adafuse.models.adapters import adapted, check_lora
from adafuse.models.files import (
    check_merged,
    check_pickled,
    check_whole,
    local_path,
    safe_files,
)
from adafuse.models.gguf_file import check_nothing_dropped, check_weights_read, gguf_ends
from adafuse.models.hub import check_hub_adapter, check_path, checking_values, from_hub, parsed_gguf
from adafuse.models.memory import TREE_NODES, cache_bytes
from adafuse.models.placement import device_map, device_names, layer_devices, resolved
from adafuse.models.quantization import (
    check_packable,
    kind_of,
    quantization_config,
    quantizer_of,
    without_weights,
)
from adafuse.models.spec import AUTO, GGUF, ModelEntry, ModelSpec, refuse_served
from adafuse.models.tokenizers import generation_config, load_tokenizer
from adafuse.models.wrappers import check_head, check_text_only, factory_of, is_wrapper
from adafuse.servers.probe import probe
from adafuse.servers.registry import connect
from adafuse.servers.server import Ask, Server
from adafuse.tokenization.text import ModelTokenizer, end_ids
from adafuse.tokenization.token_bytes import id_count, special_ids, unused_ids

logger = logging.getLogger(__name__)

NO_LIMIT = 1 << 30


@dataclass(frozen=True, eq=False, kw_only=True)
class LanguageModel(ModelTokenizer):
    """Model m_k: a tokenizer with what runs the model; `context` is the number of positions."""

    context: int

    @property
    def readable(self) -> int:
        """The most ids whose log-probabilities can be read, those of the prompt included."""
        return self.context

    @property
    def device(self) -> torch.device:
        """Where this process computes with what the model says."""
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers that the model says."""
        return torch.float32

    @property
    def description(self) -> dict[str, Any]:
        """What runs the model: results depend on it."""
        return {}

    def close(self) -> None:
        """Give back what is elsewhere."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadedModel(LanguageModel):
    """A model whose network is in this process."""

    network: PreTrainedModel

    @cached_property
    def device(self) -> torch.device:
        """Where input ids go."""
        return next(self.network.get_input_embeddings().parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return self.network.dtype

    @property
    def description(self) -> dict[str, Any]:
        return {
            "commit": getattr(self.network.config, "_commit_hash", None),
            "dtype": str(self.dtype),
            "device": str(self.device),
            "parameters": self.network.num_parameters(),
        }

    @property
    def readable(self) -> int:
        """One more than positions: what follows the last id is not asked."""
        return self.context + 1


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedModel(LanguageModel):
    """A model on a `server`: only its tokenizer and config are here."""

    server: Server

    @property
    def description(self) -> dict[str, Any]:
        return self.server.served._asdict()

    def close(self) -> None:
        self.server.close()


def loaded(models: Sequence[LanguageModel], what: str) -> tuple[LoadedModel, ...]:
    """Return models whose networks are here, which `what` needs.

    Raises:
        UserError: one is on a server.
    """
    for model in models:
        if isinstance(model, ServedModel):
            refuse_served(model.name, what)
    return cast(tuple[LoadedModel, ...], tuple(models))


_OF_WEIGHTS = ("path", "revision", "device", "dtype", "quantization", "trust_remote_code")


def _is_no_report(record: logging.LogRecord) -> bool:
    """Whether a message is not the table of weights, of which errors name the first."""
    return "LOAD REPORT" not in record.getMessage()


logging.getLogger("transformers.modeling_utils").addFilter(_is_no_report)


def load_models(specs: Sequence[ModelSpec]) -> list[LanguageModel]:
    """Load all models; the configs and tokenizers of all are checked before any weights.

    Models that are spread come last, into the memory that the others leave.
    """
    if not sys.stderr.isatty():
        hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    checked = [(spec, load_config(spec), load_tokenizer(spec)) for spec in resolved(specs)]
    for spec, config, tokenizer in checked:
        generation_config(spec, config)  # where transformers passes over what it cannot read
        check_rows(tokenizer, config, spec.path)
        rows = config.get_text_config().vocab_size
        if (few := too_few_tokens(id_count(tokenizer), rows, spec.path)) is not None:
            logger.warning("%s", few)
        if spec.server is None:
            check_whole(spec.path, spec.revision)
    order = sorted(range(len(specs)), key=lambda number: specs[number].spread)
    loaded: dict[int, LanguageModel] = {}
    bases: dict[str, PreTrainedModel] = {}
    for number in order:
        spec, config, tokenizer = checked[number]
        if spec.server is not None:
            loaded[number] = connected(spec, config, tokenizer)
        else:
            loaded[number] = _load(spec, config, tokenizer, bases)
    parsed_gguf.cache_clear()
    return [loaded[number] for number in range(len(specs))]


def connected(
    spec: ModelSpec, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> ServedModel:
    """Connect to the server of a model and check it; no weights are read here."""
    assert spec.server is not None
    generation, gguf = generation_config(spec, config), gguf_ends(spec.path, spec.revision)
    ends = end_ids(config, generation, tokenizer, spec.path, gguf, spec.thoughts or {})
    rows = config.get_text_config().vocab_size
    known = [index for index in ends if index < rows]
    server = connect(spec.server, spec.server_model, spec.server_key, known)
    _check_served(server, spec, tokenizer, rows)
    logger.info("%s is at %s (%s)", spec.path, spec.server, server.served)
    return ServedModel(
        name=spec.path,
        tokenizer=tokenizer,
        end_ids=ends,
        chat=_uses_template(spec, tokenizer),
        chat_date=spec.chat_date,
        chat_template_kwargs=spec.chat_template_kwargs or {},
        thoughts=spec.thoughts or {},
        rows=rows,
        # A server writes an id after whatever it reads, and counts it.
        context=min(context_length(config), server.served.context - 1),
        server=server,
    )


def _check_served(
    server: Server, spec: ModelSpec, tokenizer: PreTrainedTokenizerBase, rows: int
) -> None:
    """Refuse a server of a model with other ids, or one that is wrong about them."""
    try:
        for number, line in enumerate(probe(server, plain_ids(tokenizer), quick=True)):
            if line.problem:
                raise UserError(f"the server {spec.server} {line.problem}")
            logger.info("%s: %s", spec.server, line.text)
            if number == 0:  # of the tokenizer; what follows asks for ids
                _check_rows_there(server, spec, rows)
    except ExampleError as error:
        raise UserError(str(error)) from error


def _check_rows_there(server: Server, spec: ModelSpec, rows: int) -> None:
    try:
        server.asked(Ask((rows - 1,)), 2)
    except ExampleError as error:
        raise UserError(
            f"{spec.path} has {rows} ids, but {error}; give the path of the model that is served"
            " there"
        ) from error


def plain_ids(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], list[int]]:
    """Return what encodes a text without special tokens."""
    return partial(tokenizer.encode, add_special_tokens=False)


def _load(
    spec: ModelSpec,
    config: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    bases: dict[str, PreTrainedModel],
) -> LoadedModel:
    """Load a model; `bases` are the networks under adapters, which others may be over as well."""
    if spec.adapter is None:
        network = _network(spec, config)
    else:
        base = repr([getattr(spec, name) for name in _OF_WEIGHTS])
        if base not in bases or spec.spread or getattr(bases[base], "is_quantized", False):
            bases[base] = _network(spec, config)
        network = adapted(bases[base], spec)
    chat, ends = _uses_template(spec, tokenizer), gguf_ends(spec.path, spec.revision)
    thoughts, variables = spec.thoughts or {}, spec.chat_template_kwargs or {}
    model = wrapped(network, tokenizer, spec.name, thoughts, chat=chat, gguf_ends=ends)
    return replace(model, chat_date=spec.chat_date, chat_template_kwargs=variables)


def check_weights(spec: ModelSpec, config: PreTrainedConfig) -> None:
    """Refuse a model whose weights are not those that its config asks for; none of them are read.

    Quantized weights and pickled ones are not looked at, nor is a network that cannot be made
    without its weights. Of a GGUF file, weights are refused that its network does not have.
    """
    folder = local_path(spec.path, spec.revision)
    if spec.path.endswith(GGUF):
        check_weights_read(spec, without_weights(spec, config))
        return
    if folder is None or not safe_files(folder) or kind_of(config) is not None:
        return
    level = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with suppress(RuntimeError):
            _network(spec.model_copy(update={"quantization": None}), config, META)
    finally:
        hf_logging.set_verbosity(level)


META = "meta"
"""Where torch has tensors without values."""


def _network(
    spec: ModelSpec, config: PreTrainedConfig, place: str | None = None
) -> PreTrainedModel:
    devices, kind = place or device_names(spec), kind_of(config)
    if place is None:
        logger.info("loading %s as %s on %s", spec.path, spec.quantization or spec.dtype, devices)
    try:
        loaded: tuple[PreTrainedModel, dict[str, Any]] = from_hub(
            factory_of(config),
            spec,
            config=config,
            dtype=getattr(torch, spec.dtype),
            # None prefers them where there are both.
            use_safetensors=None if spec.allow_pickle else True,
            device_map=place or device_map(spec, config),
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
    check_weights_read(spec, network)
    check_packable(network, spec)
    dequantized = kind is not None and not getattr(network, "is_quantized", False)
    if kind is None or dequantized:
        check_all_used(network, spec.path, report["unexpected_keys"])
    if dequantized:
        for weights in network.parameters():  # the other weights are as in the files
            weights.data = weights.data.to(getattr(torch, spec.dtype))
    return network


_LAYER = re.compile(r"(.*?layers)\.(\d+)\.")


def _count(network: PreTrainedModel, layers: str) -> int:
    """Return how many layers a network has under a name; as if very many if it has none there."""
    try:
        found = network.get_submodule(layers)
    except AttributeError:
        return sys.maxsize
    return len(found) if isinstance(found, nn.ModuleList) else sys.maxsize


def check_all_used(network: PreTrainedModel, path: str, unexpected: Iterable[str]) -> None:
    """Refuse weights of a module that has others: it would compute something else without them.

    Those are scales of weights whose quantization the config does not name, and biases; and layers
    after the last one that the config names, but those that predict several tokens.
    """
    more = int(getattr(network.config.get_text_config(), "num_nextn_predict_layers", None) or 0)
    for name in sorted(map(str, unexpected)):
        if (layer := _LAYER.match(name)) and _count(network, layer[1]) + more <= int(layer[2]):
            raise UserError(
                f"model {path!r} has weights {name!r} of a layer after the last of its config;"
                " correct num_hidden_layers, or download it again"
            )
        owner, _, own = name.rpartition(".")
        try:
            module = network.get_submodule(owner)
        except AttributeError:  # transformers leaves out parts that decoding does not need
            continue
        if [*module.parameters(recurse=False)] and getattr(module, own, None) is None:
            raise UserError(
                f"model {path!r} has weights {name!r}, which its config says nothing of (a"
                " quantization, or a bias), so they would be left out; download it again, or name a"
                " checkpoint that transformers can read"
            )


def wrapped(
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    name: str | None = None,
    thoughts: Mapping[str, str] | None = None,
    *,
    chat: bool = False,
    gguf_ends: Sequence[int] = (),
) -> LoadedModel:
    """Return a network that is loaded already, with its tokenizer, as a model of an ensemble.

    `gguf_ends` are the end ids that a GGUF file names.
    """
    name = name or str(network.name_or_path) or type(network).__name__
    if not network.can_generate() or network.config.is_encoder_decoder:
        raise UserError(
            f"model {name!r} is a {type(network).__name__}, not a causal language model; load one"
            " with AutoModelForCausalLM"
        )
    if is_wrapper(network.config):
        check_text_only(network.eval(), name)  # type: ignore[no-untyped-call]
    check_rows(tokenizer, network.config, name)
    return LoadedModel(
        name=name,
        tokenizer=tokenizer,
        end_ids=end_ids(
            network.config, network.generation_config, tokenizer, name, gguf_ends, thoughts or {}
        ),
        chat=chat,
        thoughts=thoughts or {},
        rows=network.config.get_text_config().vocab_size,
        network=network.eval(),  # type: ignore[no-untyped-call]
        context=context_length(network.config),
    )


def load_config(spec: ModelEntry) -> PreTrainedConfig:
    """Load the config of a model; refuse one that cannot decode, or may not be read."""
    check_path(spec.path, spec.revision)
    check_lora(spec)
    check_pickled(spec.path, allowed=spec.allow_pickle or spec.server is not None)
    check_hub_adapter(spec)
    with checking_values(spec):
        config: PreTrainedConfig = from_hub(AutoConfig, spec)
    if config.is_encoder_decoder:
        raise UserError(
            f"model {spec.path!r} is an encoder-decoder ({config.model_type}); fused decoding"
            " needs causal language models"
        )
    check_head(spec.path, config)
    if spec.quantization is not None and (kind_of(config) or spec.source[1] is not None):
        raise UserError(
            f"model {spec.path!r} is quantized already; leave out quantization"
            f" {spec.quantization!r}"
        )
    if spec.server is None:
        check_nothing_dropped(spec, config)
        if kind_of(config) is not None:
            quantizer_of(spec, config)
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


ENOUGH = 0.9
"""Share of a network's rows that tokenizers have tokens for; the rest pads a matrix."""


def too_few_tokens(tokens: int, rows: int, name: str) -> str | None:
    """Say that a tokenizer has so few tokens that it may be another model's."""
    if tokens >= ENOUGH * rows:
        return None
    return (
        f"the tokenizer of model {name!r} has {tokens} tokens, and its network {rows}; if it is"
        " another model's, texts are wrong: give it the one that it was trained with"
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

    That is keys and values in each layer, and a float32 row over the vocabulary per tree node; for
    a model on a server, nothing here.
    """
    if not isinstance(model, LoadedModel):
        return []
    per_layer = slots(model, longest) * cache_bytes(model.network.config, model.network.dtype)
    layers = Counter(layer_devices(model.network, model.device))
    sizes = Counter({model.device: TREE_NODES * 4 * model.vocabulary})
    sizes.update({device: count * per_layer for device, count in layers.items()})
    return list(sizes.items())
