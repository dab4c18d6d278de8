"""Architectures, batches and training of the toy language models."""

import logging
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.nn.functional import cross_entropy
from transformers import (
    GenerationConfig,
    InternLM3Config,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tools.toy.records import Document
from tools.toy.tokenizers import build_tokenizer
from tools.toy.world import build_world, training_documents

MAX_POSITIONS = 8192


@dataclass(frozen=True)
class Architecture:
    """A family's code and sizes; ``other_ends`` are end tokens beside the tokenizer's own."""

    model_class: Any
    config_class: Any
    hidden: int
    layers: int
    inner: int
    heads: int
    kv_heads: int
    other_ends: tuple[str, ...] = ()
    extra: tuple[tuple[str, Any], ...] = ()

    def config(self, tokenizer: PreTrainedTokenizerFast) -> Any:
        """The configuration for a vocabulary as large as the tokenizer's."""
        return self.config_class(
            vocab_size=len(tokenizer),
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            intermediate_size=self.inner,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.hidden // self.heads,
            tie_word_embeddings=True,
            max_position_embeddings=MAX_POSITIONS,
            initializer_range=0.04,
            bos_token_id=tokenizer.bos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            **dict(self.extra),
        )


ARCHITECTURES = {
    "mistral": Architecture(
        MistralForCausalLM, MistralConfig, 144, 4, 432, 4, 2, extra=(("sliding_window", None),)
    ),
    "llama": Architecture(
        LlamaForCausalLM, LlamaConfig, 144, 4, 432, 4, 4, other_ends=("<|end_of_text|>",)
    ),
    "qwen3": Architecture(
        Qwen3ForCausalLM, Qwen3Config, 128, 5, 384, 4, 2, other_ends=("<|endoftext|>",)
    ),
    # The family has a configuration of its own and runs on Llama's code.
    "internlm3": Architecture(
        LlamaForCausalLM, InternLM3Config, 144, 4, 432, 4, 2, other_ends=("<|im_end|>",)
    ),
}


def build_model(name: str, tokenizer: PreTrainedTokenizerFast, seed: int) -> PreTrainedModel:
    """An untrained model ``name`` for ``tokenizer``, with its generation config filled in."""
    torch.manual_seed(seed)
    architecture = ARCHITECTURES[name]
    model: PreTrainedModel = architecture.model_class(architecture.config(tokenizer))
    end_tokens = (tokenizer.eos_token, *architecture.other_ends)
    ends = [tokenizer.convert_tokens_to_ids(token) for token in end_tokens]
    end_ids = ends[0] if len(ends) == 1 else ends
    model.config.eos_token_id = end_ids
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=end_ids,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
    )
    return model


T = TypeVar("T")

# Items sorted by length together: enough that a batch has little padding, few enough that the
# mixture of kinds stays the same throughout training.
SORTED_TOGETHER = 4000


def groups(
    items: Sequence[T], length: Callable[[T], int], tokens: int, rng: random.Random
) -> Iterator[list[T]]:
    """Groups of at most ``tokens`` ids with padding, in random order within each stretch."""
    for start in range(0, len(items), SORTED_TOGETHER):
        stretch = sorted(items[start : start + SORTED_TOGETHER], key=length)
        found = list(_grouped(stretch, length, tokens))
        rng.shuffle(found)
        yield from found


def _grouped(stretch: list[T], length: Callable[[T], int], tokens: int) -> Iterator[list[T]]:
    group: list[T] = []
    for item in stretch:
        if group and (len(group) + 1) * length(item) > tokens:
            yield group
            group = []
        group.append(item)
    if group:
        yield group


IGNORED = -100


@dataclass(frozen=True)
class Example:
    """Ids of one text, start token and end token included; the first ``asked`` are the prompt."""

    ids: list[int]
    asked: int


@dataclass(frozen=True)
class Batch:
    """Ids, next-token targets and target weights, each of shape [texts, tokens]."""

    ids: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor


def encode(documents: Sequence[Document], tokenizer: PreTrainedTokenizerFast) -> list[Example]:
    """Each document as the model will meet it: the prompt as at test time, then the answer."""
    prompts = tokenizer([document.prompt for document in documents])["input_ids"]
    wholes = tokenizer([document.prompt + document.answer for document in documents])["input_ids"]
    end = tokenizer.eos_token_id
    return [
        Example([*whole, end], len(prompt) if document.prompt else 1)
        for document, prompt, whole in zip(documents, prompts, wholes, strict=True)
    ]


def batches(
    examples: Sequence[Example], tokens: int, prompt_weight: float, pad: int, rng: random.Random
) -> Iterator[Batch]:
    """Batches of at most ``tokens`` ids with padding, in random order within each stretch."""
    for group in groups(examples, lambda example: len(example.ids), tokens, rng):
        yield _pad(group, prompt_weight, pad)


def _pad(group: list[Example], prompt_weight: float, pad: int) -> Batch:
    width = max(len(example.ids) for example in group)
    ids = torch.full((len(group), width), pad)
    targets = torch.full((len(group), width), IGNORED)
    weights = torch.zeros(len(group), width)
    for i, example in enumerate(group):
        row = torch.tensor(example.ids)
        ids[i, : len(row)] = row
        targets[i, : len(row) - 1] = row[1:]
        weights[i, : len(row) - 1] = 1.0
        weights[i, : example.asked - 1] = prompt_weight
    return Batch(ids, targets, weights)


log = logging.getLogger(__name__)

TOKENIZER_TEXTS = 6000
# Embeddings under the names of all architectures, and heads with one output.
NOT_MUON = ("embed", "shared", "relative_attention_bias", "head_layer.4", "detector")

BatchT = TypeVar("BatchT")
ModelT = TypeVar("ModelT", bound=PreTrainedModel)


@dataclass(frozen=True)
class Recipe:
    """How every model is trained; sizes are in texts and ids, rates are peaks."""

    texts: int = 70_000
    batch_tokens: int = 1024
    adam_rate: float = 3e-3
    muon_rate: float = 2e-2
    warmup: float = 0.05
    weight_decay: float = 0.05
    label_smoothing: float = 0.03
    prompt_weight: float = 0.1
    seed: int = 7


def train_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """The tokenizer of ``name``, trained on a sample of the model's own texts."""
    documents = training_documents(build_world(), name, TOKENIZER_TEXTS)
    return build_tokenizer(name, (document.prompt + document.answer for document in documents))


def rate_at(progress: float, warmup: float) -> float:
    """The learning rate as a share of its peak: a linear rise, then half a cosine to zero."""
    if progress < warmup:
        return progress / warmup
    return 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))


def build_optimizers(
    model: PreTrainedModel, recipe: Recipe
) -> list[tuple[torch.optim.Optimizer, float]]:
    """Optimizers with their peak rates: Muon for the layers' matrices, AdamW for the rest."""
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        other = parameter.ndim != 2 or any(part in name for part in NOT_MUON)
        inner = not other and recipe.muon_rate > 0
        (matrices if inner else others).append(parameter)
    adam = torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=recipe.weight_decay)
    optimizers: list[tuple[torch.optim.Optimizer, float]] = [(adam, recipe.adam_rate)]
    if matrices:
        muon = torch.optim.Muon(matrices, weight_decay=recipe.weight_decay, ns_steps=4)
        optimizers.append((muon, recipe.muon_rate))
    return optimizers


def loss_of(model: PreTrainedModel, batch: Batch, smoothing: float) -> torch.Tensor:
    """The weighted mean cross-entropy of ``batch`` in nats."""
    logits = model(input_ids=batch.ids, use_cache=False).logits
    losses = cross_entropy(
        logits.flatten(0, 1),
        batch.targets.flatten(),
        ignore_index=IGNORED,
        label_smoothing=smoothing,
        reduction="none",
    )
    weights = batch.weights.flatten()
    return (losses * weights).sum() / weights.sum()


def fit(
    name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, recipe: Recipe
) -> None:
    """Train ``model`` in place on one pass over its own texts."""
    documents = list(training_documents(build_world(), name, recipe.texts))
    examples = encode(documents, tokenizer)
    pad = int(tokenizer.pad_token_id)
    rng = random.Random(recipe.seed)
    schedule = list(batches(examples, recipe.batch_tokens, recipe.prompt_weight, pad, rng))
    optimize(name, model, schedule, partial(loss_of, smoothing=recipe.label_smoothing), recipe)


def optimize(
    name: str,
    model: ModelT,
    schedule: Sequence[BatchT],
    loss_of: Callable[[ModelT, BatchT], torch.Tensor],
    recipe: Recipe,
) -> None:
    """Take one step per batch of ``schedule``."""
    optimizers = build_optimizers(model, recipe)
    model.train()
    started = time.monotonic()
    for step, batch in enumerate(schedule):
        rate = rate_at((step + 1) / len(schedule), recipe.warmup)
        loss = loss_of(model, batch)
        model.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, peak in optimizers:
            optimizer.param_groups[0]["lr"] = peak * rate
            optimizer.step()
        if step % 200 == 0 or step + 1 == len(schedule):
            log.info("%s step %d/%d loss %.3f after %.0f s", name, step + 1, len(schedule),
                     loss.item(), time.monotonic() - started)  # fmt: skip


def train_model(name: str, folder: Path, recipe: Recipe) -> None:
    """Train tokenizer and model ``name`` and write them to ``folder``."""
    tokenizer = train_tokenizer(name)
    model = build_model(name, tokenizer, recipe.seed)
    log.info("%s: %d parameters, %d ids", name, model.num_parameters(), len(tokenizer))
    fit(name, model, tokenizer, recipe)
    model.half().save_pretrained(folder)  # type: ignore[no-untyped-call]
    tokenizer.save_pretrained(folder)
