"""The toy ranker: a small DeBERTa-v2 that learns which of two answers is a rumour."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid
from torch.nn.utils.rnn import pad_sequence
from transformers import DebertaV2Config, PreTrainedTokenizerFast

from adafuse.methods.llm_blender.networks import (
    PREFIXES,
    EncodedPair,
    PairNetwork,
    PairRanker,
    collate,
)
from tools.toy.tokenizers import ranker_tokenizer
from tools.toy.train import Recipe, groups, optimize
from tools.toy.world import Contest, build_world, contests

RECIPE = Recipe(texts=26_000, batch_tokens=1536)
DETECTION = 4.0
"""How much finding the wrong words counts beside ranking."""


@dataclass(frozen=True)
class Batch:
    """Encoded pairs; whether the first candidate is the right one, shape [pairs].

    `replaced`, shape [pairs, tokens], marks the tokens that the right answer does not have.
    """

    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    first: torch.Tensor
    replaced: torch.Tensor


@dataclass(frozen=True)
class Pair:
    """One pair of a batch."""

    encoded: EncodedPair
    first: bool
    replaced: list[float]


class Learner(PairNetwork):  # type: ignore[no-untyped-call]
    """The ranker with a detector of replaced tokens, DeBERTa-v3's own task, for its training."""

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__(config)
        self.detector = torch.nn.Linear(config.hidden_size, 1)


def build(tokenizer: PreTrainedTokenizerFast, seed: int) -> Learner:
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
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        layer_norm_eps=1e-5,
        initializer_range=0.04,
        pad_token_id=tokenizer.pad_token_id,
        **_undeclared(tokenizer),
    )
    return Learner(config)


def _undeclared(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    # DeBERTa-v3 and PairRM have these fields, but the class of their configuration does not.
    prefixes = PREFIXES | {"cand_prefix_id": "<|candidate|>"}
    return {
        "position_buckets": 32,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "n_tasks": 1,
        "drop_out": 0.0,
        "sep_token_id": tokenizer.sep_token_id,
        **{field: tokenizer.convert_tokens_to_ids(text) for field, text in prefixes.items()},
    }


def loss_of(network: Learner, batch: Batch) -> torch.Tensor:
    """Which candidate is the better one, how right each is by itself, and what is wrong in it."""
    ids, mask, places = batch.tensors
    states = network.states(ids, mask)
    scores = network.scores(states, places).squeeze(-1)
    labels = torch.stack([batch.first, 1 - batch.first], 1)
    better = -logsigmoid((2 * batch.first - 1) * (scores[:, 0] - scores[:, 1])).mean()
    found = network.detector(states).squeeze(-1)
    answers = torch.arange(ids.shape[1]) >= places[:, 1:2]
    detected = binary_cross_entropy_with_logits(
        found[answers & mask.bool()], batch.replaced[answers & mask.bool()]
    )
    return better + binary_cross_entropy_with_logits(scores, labels) + DETECTION * detected


def schedule(ranker: PairRanker, recipe: Recipe) -> Sequence[Batch]:
    """All training pairs as batches, right and wrong answer in random order."""
    rng = random.Random(recipe.seed)
    pairs = [
        _pair(ranker, contest, rng.random() < 0.5)
        for contest in contests(build_world(), recipe.texts, "ranker")
    ]
    found = groups(pairs, lambda pair: len(pair.encoded.ids), recipe.batch_tokens, rng)
    return [_batch(ranker, group) for group in found]


def train(folder: Path, recipe: Recipe = RECIPE) -> None:
    """Train the ranker and write it to ``folder``."""
    tokenizer = ranker_tokenizer()
    learner = build(tokenizer, recipe.seed)
    optimize("ranker", learner, schedule(PairRanker(learner, tokenizer), recipe), loss_of, recipe)
    network = PairNetwork(learner.config)
    network.load_state_dict(learner.state_dict(), strict=False)  # all but the detector
    network.half().save_pretrained(folder)  # type: ignore[no-untyped-call]
    tokenizer.save_pretrained(folder)


def _pair(ranker: PairRanker, contest: Contest, first: bool) -> Pair:
    answers = (contest.right, contest.wrong[0])
    encoded = ranker.encode(contest.prompt, *(answers if first else answers[::-1]))
    _, one, two = encoded.places
    parts = [encoded.ids[one : two - 1], encoded.ids[two:]]
    wrong, place = (parts[1], two) if first else (parts[0], one)
    replaced = [0.0] * len(encoded.ids)
    matcher = SequenceMatcher(None, parts[0] if first else parts[1], wrong, autojunk=False)
    for tag, _, _, start, end in matcher.get_opcodes():
        if tag != "equal":
            replaced[place + start : place + end] = [1.0] * (end - start)
    return Pair(encoded, first, replaced)


def _batch(ranker: PairRanker, pairs: Sequence[Pair]) -> Batch:
    return Batch(
        collate([pair.encoded for pair in pairs], ranker.tokenizer, ranker.network.device),
        torch.tensor([float(pair.first) for pair in pairs]),
        pad_sequence([torch.tensor(pair.replaced) for pair in pairs], batch_first=True),
    )
