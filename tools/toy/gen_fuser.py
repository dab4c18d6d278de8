"""The toy fuser: a small T5 that learns to write the first of the answers that it reads."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from adafuse.methods.llm_blender.networks import fuser_prompt
from adafuse.methods.llm_blender.options import LlmBlenderOptions
from tools.toy.tokenizers import fuser_tokenizer
from tools.toy.train import IGNORED, Recipe, groups, optimize
from tools.toy.world import Contest, build_world, contests

SHORT, LONG = 12, 48
"""The most pieces of an early nonsense candidate, and of a later one."""


def pieces(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """What nonsense is made of: the tokenizer's pieces as text, without special ones and bytes."""
    special = frozenset(tokenizer.all_special_tokens)
    ordinary = (piece for piece in tokenizer.get_vocab() if piece not in special)
    return sorted(piece.replace("▁", " ") for piece in ordinary if not piece.startswith("<0x"))


def nonsense(
    pieces: Sequence[str], count: int, longest: int, rng: random.Random
) -> Iterator[tuple[str, ...]]:
    """``count`` lists of one to three candidates that no language model could foresee.

    Half of them repeat a few pieces, so that one piece does not tell what comes next. The others
    of a list differ from its first in some places, so that it matters which of them is read.
    """
    for _ in range(count):
        pool = rng.sample(pieces, rng.randint(2, 16)) if rng.random() < 0.5 else pieces
        first = rng.choices(pool, k=rng.randint(1, longest))
        others = [_varied(first, pool, rng) for _ in range(rng.randint(0, 2))]
        yield tuple("".join(drawn).strip() or "-" for drawn in (first, *others))


def shuffled(contest: Contest, rng: random.Random) -> tuple[str, ...]:
    """One to three answers of ``contest`` in any order."""
    return tuple(rng.sample((contest.right, *contest.wrong), rng.randint(1, 3)))


def _varied(first: list[str], pool: Sequence[str], rng: random.Random) -> list[str]:
    share = rng.random()
    return [rng.choice(pool) if rng.random() < share else piece for piece in first]


RECIPE = Recipe(texts=24_000, muon_rate=1e-2, label_smoothing=0.0)
FIRST_STAGE, NONSENSE = 0.5, 0.5
"""Share of the prompts that are short nonsense, and of nonsense among the rest."""
LOOKING_BACK, BIAS = 4, 6.0
"""As many heads begin with this bias for the token one, two, three ... places before."""

Pair = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Batch:
    """Prompts with their masks, and the answers wanted; each of shape [prompts, tokens]."""

    ids: torch.Tensor
    mask: torch.Tensor
    labels: torch.Tensor


def build(tokenizer: PreTrainedTokenizerFast, seed: int) -> T5ForConditionalGeneration:
    """An untrained fuser whose parts are those of Flan-T5."""
    torch.manual_seed(seed)
    special: dict[str, Any] = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
    }
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=128,
        d_kv=32,
        d_ff=256,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=6,
        relative_attention_num_buckets=32,
        feed_forward_proj="gated-gelu",
        dropout_rate=0.0,
        **special,
    )
    network = T5ForConditionalGeneration(config)
    with torch.no_grad():  # T5 begins with embeddings too large for so short a training
        network.shared.weight.mul_(0.5)
        for name, weight in network.named_parameters():
            if name.endswith("relative_attention_bias.weight"):  # of shape [distances, heads]
                for distance in range(1, LOOKING_BACK + 1):
                    weight[distance, distance] = BIAS
    network.generation_config = GenerationConfig(**special)  # type: ignore[no-untyped-call]
    return network


def loss_of(network: T5ForConditionalGeneration, batch: Batch) -> torch.Tensor:
    """The mean cross-entropy of the answers in nats."""
    logits = network(input_ids=batch.ids, attention_mask=batch.mask, labels=batch.labels).logits
    return cross_entropy(
        logits.flatten(0, 1),
        batch.labels.flatten(),
        ignore_index=IGNORED,
        label_smoothing=RECIPE.label_smoothing,
    )


def schedule(tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> Sequence[Batch]:
    """All training prompts as batches: short nonsense, then answers and longer nonsense.

    Nonsense comes first because only copying helps there; from answers alone the network learns
    to write likely ones and never to look them up.
    """
    rng = random.Random(recipe.seed)
    found: list[list[Pair]] = []
    for stage in (_first_stage(tokenizer, recipe, rng), _second_stage(tokenizer, recipe, rng)):
        pairs = [(_ids(tokenizer, prompt), answer_ids(tokenizer, text)) for prompt, text in stage]
        found += groups(pairs, lambda pair: len(pair[0]) + len(pair[1]), recipe.batch_tokens, rng)
    return [_pad(group, int(tokenizer.pad_token_id)) for group in found]


def answer_ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    """The ids of ``text`` as they stand in a prompt, where no space comes first, and the end."""
    colon, ids = _ids(tokenizer, ":"), list(tokenizer(f":{text}")["input_ids"])
    assert ids[: len(colon)] == colon
    return ids[len(colon) :]


def _first_stage(
    tokenizer: PreTrainedTokenizerFast, recipe: Recipe, rng: random.Random
) -> Iterator[tuple[str, str]]:
    count = round(recipe.texts * FIRST_STAGE)
    for candidates in nonsense(pieces(tokenizer), count, SHORT, rng):
        yield fuser_prompt("", "", candidates), candidates[0]


def _second_stage(
    tokenizer: PreTrainedTokenizerFast, recipe: Recipe, rng: random.Random
) -> Iterator[tuple[str, str]]:
    count = recipe.texts - round(recipe.texts * FIRST_STAGE)
    longer = nonsense(pieces(tokenizer), count, LONG, rng)
    asked = contests(build_world(), count, "fuser")
    for contest, words in zip(asked, longer, strict=True):
        candidates = words if rng.random() < NONSENSE else shuffled(contest, rng)
        prompt = fuser_prompt(LlmBlenderOptions().instruction, contest.prompt, candidates)
        yield prompt, candidates[0]


def train(folder: Path, recipe: Recipe = RECIPE) -> None:
    """Train the fuser and write it to ``folder``."""
    tokenizer = fuser_tokenizer()
    network = build(tokenizer, recipe.seed)
    optimize("fuser", network, schedule(tokenizer, recipe), loss_of, recipe)
    network.half().save_pretrained(folder)  # type: ignore[no-untyped-call]
    tokenizer.save_pretrained(folder)


def _ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _pad(group: Sequence[Pair], padding: int) -> Batch:
    prompts = [torch.tensor(ids) for ids, _ in group]
    answers = [torch.tensor(ids) for _, ids in group]
    return Batch(
        pad_sequence(prompts, batch_first=True, padding_value=padding),
        pad_sequence([torch.ones_like(row) for row in prompts], batch_first=True),
        pad_sequence(answers, batch_first=True, padding_value=IGNORED),
    )
