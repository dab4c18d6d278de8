"""The toy ranker: a small DeBERTa-v2 that learns which of two answers is a rumour."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid
from transformers import DebertaV2Config, PreTrainedTokenizerFast

from adafuse.models.pair_network import PairNetwork
from adafuse.models.pair_ranker import PREFIXES, EncodedPair, PairRanker, collate
from adafuse.toy.blender_tokenizers import ranker_tokenizer
from adafuse.toy.contests import contests
from adafuse.toy.lengths import groups
from adafuse.toy.train import Recipe, optimize
from adafuse.toy.world import build_world

RECIPE = Recipe(texts=24_000, batch_tokens=2048)


@dataclass(frozen=True)
class Batch:
    """Encoded pairs, and whether the first candidate is the right one; shape [pairs]."""

    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    first: torch.Tensor


def build(tokenizer: PreTrainedTokenizerFast, seed: int) -> PairNetwork:
    """An untrained ranker whose parts are those of DeBERTa-v3."""
    torch.manual_seed(seed)
    config = DebertaV2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        relative_attention=True,
        position_buckets=32,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        layer_norm_eps=1e-5,
        initializer_range=0.04,
        pad_token_id=tokenizer.pad_token_id,
        n_tasks=1,
        drop_out=0.0,
        sep_token_id=tokenizer.sep_token_id,
        cand_prefix_id=tokenizer.convert_tokens_to_ids("<|candidate|>"),
        **{field: tokenizer.convert_tokens_to_ids(text) for field, text in PREFIXES.items()},
    )
    return PairNetwork(config)


def loss_of(network: PairNetwork, batch: Batch) -> torch.Tensor:
    """How likely each candidate is right by itself, and which of the two is the better one."""
    scores = network.scores(*batch.tensors).squeeze(-1)
    labels = torch.stack([batch.first, 1 - batch.first], 1)
    sign = 2 * batch.first - 1
    better = -logsigmoid(sign * (scores[:, 0] - scores[:, 1])).mean()
    return better + binary_cross_entropy_with_logits(scores, labels)


def schedule(ranker: PairRanker, recipe: Recipe) -> Sequence[Batch]:
    """All training pairs as batches, right and wrong answer in random order."""
    rng = random.Random(recipe.seed)
    pairs: list[tuple[EncodedPair, float]] = []
    for contest in contests(build_world(), recipe.texts, "ranker"):
        first = rng.random() < 0.5
        answers = (contest.right, contest.wrong[0])
        encoded = ranker.encode(contest.prompt, *(answers if first else answers[::-1]))
        pairs.append((encoded, float(first)))
    return [
        Batch(
            collate([pair for pair, _ in group], ranker.tokenizer, ranker.device),
            torch.tensor([first for _, first in group]),
        )
        for group in groups(pairs, lambda pair: len(pair[0].ids), recipe.batch_tokens, rng)
    ]


def train(folder: Path, recipe: Recipe = RECIPE) -> None:
    """Train the ranker and write it to ``folder``."""
    tokenizer = ranker_tokenizer()
    ranker = PairRanker(build(tokenizer, recipe.seed), tokenizer)
    optimize("ranker", ranker.network, schedule(ranker, recipe), loss_of, recipe)
    ranker.network.half().save_pretrained(folder)  # type: ignore[no-untyped-call]
    tokenizer.save_pretrained(folder)
