"""What `llm_blender` reads and writes (arXiv 2306.02561)."""

from typing import Self

from pydantic import model_validator

from adafuse.options import Located, MethodOptions, Positive


class LlmBlenderOptions(MethodOptions):
    """The two checkpoints, and what they read and write."""

    ranker: Located = "llm-blender/PairRM-hf"
    """folder or hub id of the ranker (PairRM)"""
    fuser: Located = "llm-blender/gen_fuser_3b"
    """folder or hub id of the fuser (T5)"""
    ranker_revision: str | None = None
    """commit of the ranker on the hub"""
    fuser_revision: str | None = None
    """commit of the fuser on the hub"""
    fuser_allow_pickle: bool = False
    """read weights of the fuser that are not safetensors (such files can run code), as those of
    `gen_fuser_3b`"""
    rank_only: bool = False
    """use the best-ranked answer, without a fuser"""
    bubble: bool = False
    """choose by a single pass of pairwise comparisons in the order of the models, as the published
    code can; needs `rank_only`"""
    top_k: Positive = 3
    """number of answers that the fuser reads, best first"""
    candidate_tokens: Positive = 128
    """maximum tokens of an answer that the fuser reads"""
    prompt_tokens: Positive = 1024
    """maximum tokens of the fuser's prompt"""
    fused_tokens: Positive = 128
    """maximum tokens that the fuser writes"""
    beams: Positive = 4
    """beams of the fuser's search"""
    instruction: str = "Give the best response to the input."
    """first field of the fuser's prompt; the second is the prompt without few-shot examples"""

    @model_validator(mode="after")
    def _one_pass_finds_only_the_best(self) -> Self:
        if self.bubble and not self.rank_only:
            raise ValueError("bubble finds only the best answer; set rank_only, too")
        return self
