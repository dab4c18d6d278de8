"""The networks of LLM-Blender: PairRanker compares answers, GenFuser writes one out of several."""

import logging
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    DebertaV2Config,
    DebertaV2Model,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2PreTrainedModel

from adafuse.engine.node import Evaluator, Program
from adafuse.errors import ExampleError, UserError
from adafuse.methods.llm_blender.options import LlmBlenderOptions
from adafuse.models.files import check_pickled
from adafuse.models.hub import check_path, from_hub
from adafuse.models.placement import Place
from adafuse.models.spec import ModelEntry
from adafuse.models.tokenizers import load_tokenizer

logger = logging.getLogger(__name__)

PREFIXES = {
    "source_prefix_id": "<|source|>",
    "cand1_prefix_id": "<|candidate1|>",
    "cand2_prefix_id": "<|candidate2|>",
}
TASK = "Summarize candidates into a better one for the given instruction:"
PAIRS, PROMPTS = 8, 4
"""How many the published ranker and fuser take at a time."""


@dataclass(eq=False, slots=True)
class NetworkRequest:
    """`candidates` as answers to `source`, best first for the fuser; `result` is to be filled in.

    That of the ranker is a matrix of logits, that of the fuser its text and whether it ended; None
    if its logits were not finite.
    """

    engine: Evaluator
    source: str
    candidates: Sequence[str]
    result: Any = None


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

    def compare(self, source: str, candidates: Sequence[str]) -> Program[Sequence[Sequence[float]]]:
        """Return the logits that candidate i, shown first, is better than j (0 for i = j)."""
        request = NetworkRequest(self, source, candidates)
        yield [request]
        matrix: Sequence[Sequence[float]] = request.result
        if not all(math.isfinite(logit) for row in matrix for logit in row):
            name = self.network.name_or_path
            raise ExampleError(f"ranker {name} gives logits that are not finite numbers")
        return matrix

    def evaluate(self, requests: Iterable[NetworkRequest]) -> None:
        """Compare all candidates of all requests; a pair that occurs twice is compared once."""
        waiting = list(requests)
        pairs = dict.fromkeys(
            (request.source, one, two)
            for request in waiting
            for one, two in permutations(dict.fromkeys(request.candidates), 2)
        )
        logits = dict(zip(pairs, self.logits(list(pairs)), strict=True))
        for request in waiting:
            request.result = [
                [logits.get((request.source, one, two), 0.0) for two in request.candidates]
                for one in request.candidates
            ]

    def logits(self, pairs: Sequence[tuple[str, str, str]]) -> list[float]:
        """Return l(1, 2) of each (source, candidate 1, candidate 2)."""
        found: list[float] = []
        for start in range(0, len(pairs), PAIRS):
            batch = [self.encode(*pair) for pair in pairs[start : start + PAIRS]]
            tensors = collate(batch, self.tokenizer, self.network.device)
            with torch.inference_mode():
                found += self.network(*tensors).tolist()
        return found

    def encode(self, source: str, one: str, two: str) -> EncodedPair:
        """Put a pair together: each part with its prefix and the tokenizer's special tokens."""
        pair, room = EncodedPair([], []), self.source_tokens
        for (field, prefix), text in zip(PREFIXES.items(), (source, one, two), strict=True):
            part = self.tokenizer(prefix + text, max_length=room, truncation=True)["input_ids"]
            pair.places.append(len(pair.ids) + part.index(getattr(self.network.config, field)))
            pair.ids.extend(part)
            if len(pair.places) == 1:  # the rest is for the candidates
                room = (self.source_tokens + 2 * self.candidate_tokens - len(part)) // 2
        return pair


def collate(
    pairs: Sequence[EncodedPair], tokenizer: PreTrainedTokenizerBase, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids, mask and places of a batch of pairs, padded on the right."""
    rows = {"input_ids": [pair.ids for pair in pairs]}
    padded = tokenizer.pad(rows, padding_side="right", return_tensors="pt").to(device)
    places = torch.tensor([pair.places for pair in pairs], device=device)
    return padded["input_ids"], padded["attention_mask"], places


def load_pair_ranker(entry: ModelEntry, device: torch.device) -> PairRanker:
    """Load a ranker in float32: DeBERTa overflows in float16."""
    path = entry.path
    check_path(path, entry.revision)
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


def fuser_prompt(instruction: str, source: str, candidates: Sequence[str]) -> str:
    """Return what the fuser was trained to read; fields are joined by T5's end token."""
    numbered = (f"Candidate {i}: <extra_id_{i}>:{text}" for i, text in enumerate(candidates))
    return "</s>".join([f"Instruction: {instruction}", f"Input: {source}", *numbered, TASK])


class Broken(LogitsProcessor):
    """Notes which beams have had logits that are not numbers, and lets the search go on."""

    rows: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Take the scores of a step [beams, vocabulary]; -inf is the probability 0."""
        bad = scores.isnan().any(-1) | (scores.amax(-1).isinf())
        self.rows = bad if self.rows is None else self.rows | bad
        return scores.nan_to_num(nan=-math.inf, posinf=0.0, neginf=-math.inf)

    def texts(self, count: int) -> list[bool]:
        """Return for each text whether a beam of it is among them."""
        rows = torch.zeros(count, 1) if self.rows is None else self.rows
        return [bool(row) for row in rows.reshape(count, -1).any(-1)]


@dataclass(frozen=True, eq=False)
class GenFuser(Evaluator):
    """Fills in fuse requests by beam search."""

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    options: LlmBlenderOptions

    def fuse(self, source: str, candidates: Sequence[str]) -> Program[tuple[str, bool]]:
        """Return the fused answer, and whether the fuser ended it itself."""
        request = NetworkRequest(self, source, candidates)
        yield [request]
        if request.result is None:
            name = self.network.name_or_path
            raise ExampleError(f"fuser {name} gives logits that are not finite numbers")
        text, ended = request.result
        return text, ended

    def evaluate(self, requests: Iterable[NetworkRequest]) -> None:
        waiting = list(requests)
        for start in range(0, len(waiting), PROMPTS):
            batch = waiting[start : start + PROMPTS]
            prompts = [self.prompt_ids(request.source, request.candidates) for request in batch]
            rows = {"input_ids": prompts}
            padded = self.tokenizer.pad(rows, padding_side="right", return_tensors="pt")
            broken = Broken()
            with torch.inference_mode():
                written = self.network.generate(  # type: ignore[operator]
                    **padded.to(self.network.device),
                    do_sample=False,
                    num_beams=self.options.beams,
                    max_new_tokens=self.options.fused_tokens,
                    logits_processor=LogitsProcessorList([broken]),
                )
            wrong = broken.texts(len(batch))
            for request, (_, *ids), odd in zip(batch, written.tolist(), wrong, strict=True):
                text = str(self.tokenizer.decode(ids, skip_special_tokens=True))
                request.result = None if odd else (text, self.tokenizer.eos_token_id in ids)

    def prompt_ids(self, source: str, candidates: Sequence[str]) -> list[int]:
        """Return the ids of the longest prompt within the limit.

        First the candidates are cut down to a quarter of their limit, then the source from its
        start, then the rest of the candidates; never the last sentence.
        """
        source_ids = self._ids(source)
        candidate_ids = [self._ids(text) for text in candidates]

        def prompt(candidate_tokens: int, source_tokens: int) -> list[int]:
            texts = list(candidates)
            for number, ids in enumerate(candidate_ids):
                if len(ids) > candidate_tokens:
                    beginning = self.tokenizer.decode(ids[:candidate_tokens])
                    texts[number] = f"{beginning}..." if candidate_tokens else ""
            cut = len(source_ids) - source_tokens
            rest = source if cut <= 0 else str(self.tokenizer.decode(source_ids[cut:]))
            return self._ids(fuser_prompt(self.options.instruction, rest, texts))

        whole, few = self.options.candidate_tokens, self.options.candidate_tokens // 4
        sizes = [
            *((tokens, len(source_ids)) for tokens in range(whole, few, -1)),
            *((few, tokens) for tokens in range(len(source_ids), 0, -1)),
            *((tokens, 0) for tokens in range(few, -1, -1)),
        ]
        most = self.options.prompt_tokens
        fits = bisect_left(sizes, True, key=lambda size: len(prompt(*size)) <= most)
        return prompt(*sizes[min(fits, len(sizes) - 1)])

    def check_prompt(self, candidates: int) -> None:
        """Refuse a limit that not even a prompt of so many empty texts keeps."""
        bare, most = len(self.prompt_ids("", [""] * candidates)), self.options.prompt_tokens
        if bare > most:
            raise UserError(
                f"prompt_tokens is {most}, but the fuser's prompt takes {bare} without any answer;"
                " raise it or shorten the instruction"
            )

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def load_gen_fuser(entry: ModelEntry, options: LlmBlenderOptions, place: Place) -> GenFuser:
    """Load the fuser; T5 overflows in float16, so that is bfloat16."""
    path, device = entry.path, place.device
    dtype = torch.bfloat16 if place.dtype == torch.float16 else place.dtype
    check_path(path, entry.revision)
    check_pickled(path, allowed=entry.allow_pickle)
    config = from_hub(AutoConfig, entry)
    if not config.is_encoder_decoder:
        raise UserError(
            f"fuser {path!r} is not an encoder-decoder ({config.model_type}); name one such as"
            " llm-blender/gen_fuser_3b"
        )
    tokenizer = load_tokenizer(entry)
    logger.info("loading fuser %s as %s on %s", path, dtype, device)
    safe = None if entry.allow_pickle else True
    network = from_hub(
        AutoModelForSeq2SeqLM, entry, config=config, dtype=dtype, use_safetensors=safe
    )
    return GenFuser(network.to(device).eval(), tokenizer, options)
