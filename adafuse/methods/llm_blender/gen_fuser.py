"""GenFuser: one answer out of several, best first (arXiv 2306.02561, section 4)."""

import logging
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase

from adafuse.engine.node import Evaluator, Program
from adafuse.errors import UserError
from adafuse.methods.llm_blender.options import LlmBlenderOptions
from adafuse.models.hub import check_path, from_hub
from adafuse.models.language_model import load_tokenizer
from adafuse.models.placement import Place
from adafuse.models.spec import ModelEntry

logger = logging.getLogger(__name__)

TASK = "Summarize candidates into a better one for the given instruction:"
BATCH = 4
"""Prompts a beam search; the published fuser takes as many."""


def fuser_prompt(instruction: str, source: str, candidates: Sequence[str]) -> str:
    """Return what the fuser was trained to read; fields are joined by T5's end token."""
    numbered = (f"Candidate {i}: <extra_id_{i}>:{text}" for i, text in enumerate(candidates))
    return "</s>".join([f"Instruction: {instruction}", f"Input: {source}", *numbered, TASK])


@dataclass(eq=False, slots=True)
class FuseRequest:
    """`candidates`, best first, as answers to `source`; `text` and `ended` are to be filled in."""

    engine: Evaluator
    source: str
    candidates: Sequence[str]
    text: str = ""
    ended: bool = False


@dataclass(frozen=True, eq=False)
class GenFuser:
    """Fills in fuse requests by beam search."""

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    options: LlmBlenderOptions

    def fuse(self, source: str, candidates: Sequence[str]) -> Program[tuple[str, bool]]:
        """Return the fused answer, and whether the fuser ended it itself."""
        request = FuseRequest(self, source, candidates)
        yield [request]
        return request.text, request.ended

    def evaluate(self, requests: Iterable[FuseRequest]) -> None:
        """Fuse the candidates of each request."""
        waiting = list(requests)
        for start in range(0, len(waiting), BATCH):
            batch = waiting[start : start + BATCH]
            prompts = [self.prompt_ids(request.source, request.candidates) for request in batch]
            for request, ids in zip(batch, self._search(prompts), strict=True):
                request.text = str(self.tokenizer.decode(ids, skip_special_tokens=True))
                request.ended = self.tokenizer.eos_token_id in ids

    def prompt_ids(self, source: str, candidates: Sequence[str]) -> list[int]:
        """Return the ids of the longest prompt within the limit; its last sentence is always there.

        What is too long is cut in this order: the candidates down to a quarter of their limit, the
        source from its start, the rest of the candidates.
        """
        source_ids = self._ids(source)
        candidate_ids = [self._ids(text) for text in candidates]

        def prompt(candidate_tokens: int, source_tokens: int) -> list[int]:
            texts = [
                text if len(ids) <= candidate_tokens else self._beginning(ids, candidate_tokens)
                for text, ids in zip(candidates, candidate_ids, strict=True)
            ]
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

    def _search(self, prompts: list[list[int]]) -> list[list[int]]:
        padded = self.tokenizer.pad(
            {"input_ids": prompts}, padding_side="right", return_tensors="pt"
        ).to(self.network.device)
        with torch.inference_mode():
            written = self.network.generate(  # type: ignore[operator]
                padded["input_ids"],
                attention_mask=padded["attention_mask"],
                do_sample=False,
                num_beams=self.options.beams,
                max_new_tokens=self.options.fused_tokens,
            )
        return [row[1:] for row in written.tolist()]

    def _beginning(self, ids: list[int], tokens: int) -> str:
        return f"{self.tokenizer.decode(ids[:tokens])}..." if tokens else ""

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def load_gen_fuser(options: LlmBlenderOptions, place: Place) -> GenFuser:
    """Load the fuser; T5 overflows in float16, so that is bfloat16."""
    path, device = options.fuser, place.device
    dtype = torch.bfloat16 if place.dtype == torch.float16 else place.dtype
    entry = ModelEntry(path=path, revision=options.fuser_revision)
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
    return GenFuser(network.to(device).eval(), tokenizer, options)
