"""The network of PairRM; its parameters are named as in the checkpoint llm-blender/PairRM-hf."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, DebertaV2Config, DebertaV2Model, PreTrainedTokenizerBase
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2PreTrainedModel

from adafuse.engine.node import Evaluator
from adafuse.errors import UserError
from adafuse.methods.llm_blender.requests import RankRequest
from adafuse.models.hub import check_path, from_hub
from adafuse.models.language_model import load_tokenizer
from adafuse.models.spec import ModelEntry


class PairNetwork(DebertaV2PreTrainedModel):  # type: ignore[no-untyped-call]
    """DeBERTa-v2 with a head that scores each candidate of a pair beside the source.

    `config` has n_tasks and drop_out besides DeBERTa's own fields.
    """

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
        """Return the encoder's last hidden states, shape [pairs, tokens, hidden].

        Args:
            ids: shape [pairs, tokens].
            mask: 1 for a token, 0 for padding; shape [pairs, tokens].
        """
        encoded: torch.Tensor = self.pretrained_model(ids, attention_mask=mask).last_hidden_state
        return encoded

    def scores(self, states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Return s_left and s_right of each task, shape [pairs, 2, tasks].

        Args:
            states: shape [pairs, tokens, hidden].
            places: where the three prefixes stand, shape [pairs, 3].
        """
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


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """The ids of a source and two candidates, and where the three prefixes stand in them."""

    ids: list[int]
    places: list[int]


@dataclass(frozen=True, eq=False)
class PairRanker(Evaluator):
    """Fills in rank requests; what a source leaves of its budget goes to the candidates."""

    network: PairNetwork
    tokenizer: PreTrainedTokenizerBase
    source_tokens: int = 1224
    candidate_tokens: int = 412

    def evaluate(self, requests: Iterable[RankRequest]) -> None:
        """Compare all candidates of all requests; a pair that occurs twice is compared once."""
        asked = list(requests)
        compared = {pair: 0.0 for request in asked for pair in _pairs(request)}
        compared = dict(zip(compared, self.logits(list(compared)), strict=True))
        for request in asked:
            request.matrix = [
                [compared.get((request.source, one, two), 0.0) for two in request.candidates]
                for one in request.candidates
            ]

    def logits(self, pairs: Sequence[Pair]) -> list[float]:
        """Return l(1, 2) of each (source, candidate 1, candidate 2)."""
        encoded = [self.encode(*pair) for pair in pairs]
        by_length = sorted(range(len(pairs)), key=lambda index: len(encoded[index].ids))
        found = [0.0] * len(pairs)
        for start in range(0, len(pairs), BATCH):
            chosen = by_length[start : start + BATCH]
            tensors = collate([encoded[index] for index in chosen], self.tokenizer, self.device)
            with torch.inference_mode():
                values = self.network(*tensors).tolist()
            for index, value in zip(chosen, values, strict=True):
                found[index] = value
        return found

    def encode(self, source: str, one: str, two: str) -> EncodedPair:
        """Put a pair together: each part with its prefix and the tokenizer's special tokens."""
        first = self._part("source_prefix_id", source, self.source_tokens)
        room = (self.source_tokens + 2 * self.candidate_tokens - len(first.ids)) // 2
        joined = first
        for prefix, text in (("cand1_prefix_id", one), ("cand2_prefix_id", two)):
            part = self._part(prefix, text, room)
            place = len(joined.ids) + part.places[0]
            joined = EncodedPair(joined.ids + part.ids, [*joined.places, place])
        return joined

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.network.head_layer.parameters()).device

    def _part(self, prefix: str, text: str, room: int) -> EncodedPair:
        ids = self.tokenizer(PREFIXES[prefix] + text, max_length=room, truncation=True)["input_ids"]
        return EncodedPair(ids, [ids.index(getattr(self.network.config, prefix))])


def collate(
    pairs: Sequence[EncodedPair], tokenizer: PreTrainedTokenizerBase, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids, mask and places of a batch of pairs, padded on the right."""
    rows = [torch.tensor(pair.ids) for pair in pairs]
    ids = pad_sequence(rows, batch_first=True, padding_value=int(tokenizer.pad_token_id))
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    places = torch.tensor([pair.places for pair in pairs])
    return ids.to(device), mask.to(device), places.to(device)


def load_pair_ranker(
    path: str, revision: str | None, device: torch.device, dtype: torch.dtype = torch.float32
) -> PairRanker:
    """Load a ranker from a folder or hub id; `dtype` is float32 or bfloat16.

    Raises:
        UserError: not a checkpoint of PairRM; the sentence says what is missing.
    """
    assert dtype != torch.float16, "DeBERTa overflows in float16"
    entry = ModelEntry(path=path, revision=revision)
    check_path(path)
    config = from_hub(AutoConfig, entry)
    _check_config(config, path)
    tokenizer = load_tokenizer(entry)
    _check_prefixes(config, tokenizer, path)
    logger.info("loading ranker %s as %s on %s", path, dtype, device)
    network, loaded = from_hub(
        PairNetwork,
        entry,
        config=config,
        dtype=dtype,
        use_safetensors=True,
        output_loading_info=True,
    )
    if loaded["missing_keys"]:
        lacking = min(loaded["missing_keys"])
        raise UserError(
            f"ranker {path!r} has no weights for {lacking}; name a PairRM checkpoint such"
            " as llm-blender/PairRM-hf"
        )
    return PairRanker(network.to(device).eval(), tokenizer)


def _check_config(config: object, path: str) -> None:
    kind = getattr(config, "model_type", None)
    if kind != "deberta-v2":
        raise UserError(
            f"ranker {path!r} is of type {kind}, not deberta-v2; name a PairRM checkpoint such as"
            " llm-blender/PairRM-hf"
        )
    for field in ("n_tasks", "drop_out", *PREFIXES):
        if not hasattr(config, field):
            raise UserError(
                f"ranker {path!r} has no {field} in its config.json; name a PairRM checkpoint such"
                " as llm-blender/PairRM-hf"
            )


def _check_prefixes(config: DebertaV2Config, tokenizer: PreTrainedTokenizerBase, path: str) -> None:
    for field, prefix in PREFIXES.items():
        number = getattr(config, field)
        if number not in tokenizer(prefix)["input_ids"]:
            raise UserError(
                f"ranker {path!r} has a tokenizer that does not read {prefix} as id {number}, its"
                f" {field}; use the tokenizer that the checkpoint came with"
            )


def _pairs(request: RankRequest) -> Iterable[Pair]:
    distinct = dict.fromkeys(request.candidates)
    return ((request.source, one, two) for one, two in permutations(distinct, 2))
