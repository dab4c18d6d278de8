"""GenFuser: one answer out of several, best first (arXiv 2306.02561, section 4)."""

import logging
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase

from adafuse.engine.node import Evaluator
from adafuse.errors import UserError
from adafuse.methods.llm_blender.requests import FuseRequest
from adafuse.models.hub import check_path, from_hub
from adafuse.models.language_model import load_tokenizer
from adafuse.models.placement import Place
from adafuse.models.spec import ModelEntry

logger = logging.getLogger(__name__)

TASK = "Summarize candidates into a better one for the given instruction:"
BATCH = 4
"""Prompts a beam search; the published fuser takes as many."""


@dataclass(frozen=True, slots=True)
class FuserLimits:
    """Tokens of the prompt, of each candidate in it and of the answer, and how many beams."""

    prompt_tokens: int = 1024
    candidate_tokens: int = 128
    new_tokens: int = 128
    beams: int = 4


def fuser_prompt(instruction: str, source: str, candidates: Sequence[str]) -> str:
    """Return what the fuser was trained to read; fields are joined by T5's end token."""
    shown = (f"Candidate {i}: <extra_id_{i}>:{text}" for i, text in enumerate(candidates))
    return "</s>".join([f"Instruction: {instruction}", f"Input: {source}", *shown, TASK])


@dataclass(frozen=True, eq=False)
class GenFuser(Evaluator):
    """Fills in fuse requests by beam search."""

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    limits: FuserLimits

    def evaluate(self, requests: Iterable[FuseRequest]) -> None:
        """Fuse the candidates of each request."""
        asked = list(requests)
        for start in range(0, len(asked), BATCH):
            batch = asked[start : start + BATCH]
            written = self._search([self.prompt_ids(request) for request in batch])
            for request, ids in zip(batch, written, strict=True):
                request.text = str(self.tokenizer.decode(ids, skip_special_tokens=True))
                request.ended = self.tokenizer.eos_token_id in ids

    def prompt_ids(self, request: FuseRequest) -> list[int]:
        """Return the ids of the longest prompt within the limit; its last sentence is always there.

        What is too long is cut in this order: the candidates down to a quarter of their limit, the
        source from its start, the rest of the candidates.
        """
        source = self._ids(request.source)
        texts = [self._ids(text) for text in request.candidates]

        def prompt(candidate_tokens: int, source_tokens: int) -> list[int]:
            shown = [
                self._cut(text, ids, candidate_tokens)
                for text, ids in zip(request.candidates, texts, strict=True)
            ]
            kept = self._last(request.source, source, source_tokens)
            return self._ids(fuser_prompt(request.instruction, kept, shown))

        whole, few = self.limits.candidate_tokens, self.limits.candidate_tokens // 4
        sizes = [
            *((tokens, len(source)) for tokens in range(whole, few, -1)),
            *((few, tokens) for tokens in range(len(source), 0, -1)),
            *((tokens, 0) for tokens in range(few, -1, -1)),
        ]
        fits = bisect_left(
            sizes, True, key=lambda size: len(prompt(*size)) <= self.limits.prompt_tokens
        )
        return prompt(*sizes[min(fits, len(sizes) - 1)])

    def check_prompt(self, instruction: str, candidates: int) -> None:
        """Refuse a limit that not even a prompt of empty texts keeps.

        Raises:
            UserError: the limit, and what is needed.
        """
        bare = self.prompt_ids(FuseRequest(self, instruction, "", ("",) * candidates))
        if len(bare) > self.limits.prompt_tokens:
            raise UserError(
                f"prompt_tokens is {self.limits.prompt_tokens}, but the fuser's prompt takes"
                f" {len(bare)} without any answer; raise it or shorten the instruction"
            )

    def _search(self, prompts: Sequence[list[int]]) -> list[list[int]]:
        rows = [torch.tensor(ids) for ids in prompts]
        padding = int(self.tokenizer.pad_token_id)
        ids = pad_sequence(rows, batch_first=True, padding_value=padding)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        with torch.inference_mode():
            written = self.network.generate(  # type: ignore[operator]
                ids.to(self.network.device),
                attention_mask=mask.to(self.network.device),
                do_sample=False,
                num_beams=self.limits.beams,
                max_new_tokens=self.limits.new_tokens,
            )
        return [row[1:] for row in written.tolist()]

    def _cut(self, text: str, ids: list[int], tokens: int) -> str:
        if len(ids) <= tokens:
            return text
        return self._text(ids[:tokens]) + "..." if tokens else ""

    def _last(self, text: str, ids: list[int], tokens: int) -> str:
        return text if len(ids) <= tokens else self._text(ids[len(ids) - tokens :])

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids))


def load_gen_fuser(path: str, revision: str | None, place: Place, limits: FuserLimits) -> GenFuser:
    """Load a fuser from a folder or hub id; T5 overflows in float16, so that is bfloat16.

    Raises:
        UserError: a model that is no encoder-decoder, or that cannot be loaded.
    """
    device = place.device
    dtype = torch.bfloat16 if place.dtype == torch.float16 else place.dtype
    entry = ModelEntry(path=path, revision=revision)
    check_path(path)
    config = from_hub(AutoConfig, entry)
    if not config.is_encoder_decoder:
        raise UserError(
            f"fuser {path!r} is no encoder-decoder ({config.model_type}); name one such as"
            " llm-blender/gen_fuser_3b"
        )
    tokenizer = load_tokenizer(entry)
    logger.info("loading fuser %s as %s on %s", path, dtype, device)
    network = from_hub(
        AutoModelForSeq2SeqLM, entry, config=config, dtype=dtype, use_safetensors=True
    )
    return GenFuser(network.to(device).eval(), tokenizer, limits)
