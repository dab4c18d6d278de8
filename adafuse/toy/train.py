"""Train the toy models: ``python -m adafuse.toy.train --out DIR [--model NAME]``."""

import argparse
import logging
import math
import multiprocessing
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from adafuse.toy.architectures import build_model
from adafuse.toy.batches import IGNORED, Batch, batches, encode
from adafuse.toy.records import MODEL_NAMES
from adafuse.toy.toy_tokenizers import build_tokenizer
from adafuse.toy.world import build_world, training_documents

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


def train_model(name: str, out: Path, recipe: Recipe) -> None:
    """Train tokenizer and model ``name`` on one thread and write them to ``out/name``."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    tokenizer = train_tokenizer(name)
    model = build_model(name, tokenizer, recipe.seed)
    log.info("%s: %d parameters, %d ids", name, model.num_parameters(), len(tokenizer))
    fit(name, model, tokenizer, recipe)
    folder = out / name
    model.half().save_pretrained(folder)  # type: ignore[no-untyped-call]
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Train one model or all of them, two processes side by side."""
    parser = argparse.ArgumentParser(description="Train the toy models.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", choices=MODEL_NAMES, help="only this one")
    parser.add_argument("--texts", type=int, default=Recipe.texts, help="training texts per model")
    options = parser.parse_args()
    recipe = Recipe(texts=options.texts)
    names = (options.model,) if options.model else MODEL_NAMES
    with multiprocessing.get_context("spawn").Pool(min(2, len(names)), maxtasksperchild=1) as pool:
        pool.starmap(train_model, [(name, options.out, recipe) for name in names], chunksize=1)


if __name__ == "__main__":
    main()
