"""Training texts as padded batches of similar length."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerFast

from adafuse.toy.lengths import groups
from adafuse.toy.records import Document

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
