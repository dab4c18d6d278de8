"""The network of PairRM; its parameters are named as in the checkpoint llm-blender/PairRM-hf."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import nn
from transformers import AutoConfig, DebertaV2Config, DebertaV2Model, PreTrainedTokenizerBase
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2PreTrainedModel

from adafuse.engine.node import Evaluator, Program
from adafuse.errors import UserError
from adafuse.models.hub import check_path, from_hub
from adafuse.models.language_model import load_tokenizer
from adafuse.models.spec import ModelEntry


class PairNetwork(DebertaV2PreTrainedModel):  # type: ignore[no-untyped-call]
    """DeBERTa-v2 with a head that scores each candidate of a pair beside the source."""

    def __init__(self, config: DebertaV2Config) -> None:
        super().__init__(config)
        hidden = config.hidden_size
        self.pretrained_model = DebertaV2Model(config)
        self.head_layer = nn.Sequential(
            nn.Dropout(config.drop_out),
            nn.Linear(2 * hidden, hidden),
            nn.Tanh(),
            nn.Dropout(config.drop_out),
            nn.Linear(hidden, config.n_tasks),
        )
        self.post_init()  # type: ignore[no-untyped-call]

    def states(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the last hidden states [pairs, tokens, hidden] of ids [pairs, tokens]."""
        encoded: torch.Tensor = self.pretrained_model(ids, attention_mask=mask).last_hidden_state
        return encoded

    def scores(self, states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Return s_left and s_right of each task [pairs, 2, tasks]; prefixes at [pairs, 3]."""
        rows = torch.arange(len(states), device=states.device).unsqueeze(1)
        source, left, right = states[rows, places].unbind(1)
        beside = torch.stack([torch.cat([source, left], -1), torch.cat([source, right], -1)], 1)
        scored: torch.Tensor = self.head_layer(beside)
        return scored

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Return l(1, 2) = s_left - s_right, the mean over the tasks; shape [pairs]."""
        left, right = self.scores(self.states(ids, mask), places).float().unbind(1)
        return (left - right).mean(-1)


logger = logging.getLogger(__name__)

PREFIXES = {
    "source_prefix_id": "<|source|>",
    "cand1_prefix_id": "<|candidate1|>",
    "cand2_prefix_id": "<|candidate2|>",
}
BATCH = 8
"""Pairs a forward; the published ranker takes as many."""

Pair = tuple[str, str, str]


@dataclass(eq=False, slots=True)
class RankRequest:
    """All ordered pairs of `candidates` as answers to `source`; the matrix is to be filled in."""

    engine: Evaluator
    source: str
    candidates: Sequence[str]
    matrix: Sequence[Sequence[float]] = ()


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """The ids of a source and two candidates, and where the three prefixes stand in them."""

    ids: list[int]
    places: list[int]


@dataclass(frozen=True, eq=False)
class PairRanker:
    """Fills in rank requests; what a source leaves of its budget goes to the candidates."""

    network: PairNetwork
    tokenizer: PreTrainedTokenizerBase
    source_tokens: int = 1224
    candidate_tokens: int = 412

    def compare(self, source: str, candidates: Sequence[str]) -> Program[Sequence[Sequence[float]]]:
        """Return the logits that candidate i, shown first, is better than j (0 for i = j)."""
        request = RankRequest(self, source, candidates)
        yield [request]
        return request.matrix

    def evaluate(self, requests: Iterable[RankRequest]) -> None:
        """Compare all candidates of all requests; a pair that occurs twice is compared once."""
        waiting = list(requests)
        pairs = list(dict.fromkeys(pair for request in waiting for pair in _pairs(request)))
        logits = dict(zip(pairs, self.logits(pairs), strict=True))
        for request in waiting:
            request.matrix = [
                [logits.get((request.source, one, two), 0.0) for two in request.candidates]
                for one in request.candidates
            ]

    def logits(self, pairs: Sequence[Pair]) -> list[float]:
        """Return l(1, 2) of each (source, candidate 1, candidate 2)."""
        encoded = [self.encode(*pair) for pair in pairs]
        by_length = sorted(range(len(pairs)), key=lambda index: len(encoded[index].ids))
        found = [0.0] * len(pairs)
        for start in range(0, len(pairs), BATCH):
            batch = by_length[start : start + BATCH]
            tensors = collate(
                [encoded[index] for index in batch], self.tokenizer, self.network.device
            )
            with torch.inference_mode():
                values = self.network(*tensors).tolist()
            for index, value in zip(batch, values, strict=True):
                found[index] = value
        return found

    def encode(self, source: str, one: str, two: str) -> EncodedPair:
        """Put a pair together: each part with its prefix and the tokenizer's special tokens."""
        ids = self._ids("source_prefix_id", source, self.source_tokens)
        room = (self.source_tokens + 2 * self.candidate_tokens - len(ids)) // 2
        parts = [
            ids,
            self._ids("cand1_prefix_id", one, room),
            self._ids("cand2_prefix_id", two, room),
        ]
        joined = EncodedPair([], [])
        for field, part in zip(PREFIXES, parts, strict=True):
            place = part.index(getattr(self.network.config, field))
            joined.places.append(len(joined.ids) + place)
            joined.ids.extend(part)
        return joined

    def _ids(self, prefix: str, text: str, room: int) -> list[int]:
        text = PREFIXES[prefix] + text
        return list(self.tokenizer(text, max_length=room, truncation=True)["input_ids"])


def collate(
    pairs: Sequence[EncodedPair], tokenizer: PreTrainedTokenizerBase, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids, mask and places of a batch of pairs, padded on the right."""
    rows = {"input_ids": [pair.ids for pair in pairs]}
    padded = tokenizer.pad(rows, padding_side="right", return_tensors="pt").to(device)
    places = torch.tensor([pair.places for pair in pairs], device=device)
    return padded["input_ids"], padded["attention_mask"], places


def load_pair_ranker(path: str, revision: str | None, device: torch.device) -> PairRanker:
    """Load a ranker from a folder or hub id, in float32: DeBERTa overflows in float16."""
    entry = ModelEntry(path=path, revision=revision)
    check_path(path)
    config = from_hub(AutoConfig, entry)
    if config.model_type != "deberta-v2":
        raise _not_a_ranker(path, f"is of type {config.model_type}, not deberta-v2")
    for field in ("n_tasks", "drop_out", *PREFIXES):
        if not hasattr(config, field):
            raise _not_a_ranker(path, f"has no {field} in its config.json")
    tokenizer = load_tokenizer(entry)
    for field, prefix in PREFIXES.items():
        number = getattr(config, field)
        if number not in tokenizer(prefix)["input_ids"]:
            raise UserError(
                f"ranker {path!r} has a tokenizer that does not read {prefix} as id {number}, its"
                f" {field}; use the tokenizer that the checkpoint came with"
            )
    logger.info("loading ranker %s on %s", path, device)
    options = {"config": config, "dtype": torch.float32, "use_safetensors": True}
    network, loaded = from_hub(PairNetwork, entry, **options, output_loading_info=True)
    if loaded["missing_keys"]:
        raise _not_a_ranker(path, f"has no weights for {min(loaded['missing_keys'])}")
    return PairRanker(network.to(device).eval(), tokenizer)


def _not_a_ranker(path: str, reason: str) -> UserError:
    return UserError(
        f"ranker {path!r} {reason}; name a PairRM checkpoint such as llm-blender/PairRM-hf"
    )


def _pairs(request: RankRequest) -> Iterable[Pair]:
    distinct = dict.fromkeys(request.candidates)
    return ((request.source, one, two) for one, two in permutations(distinct, 2))
