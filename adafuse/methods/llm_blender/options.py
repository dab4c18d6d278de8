"""What `llm_blender` reads and writes (arXiv 2306.02561)."""

from typing import Annotated, Self

from pydantic import model_validator

from adafuse.options import MethodOptions, Positive, doc


class LlmBlenderOptions(MethodOptions):
    """The two checkpoints, and what they read and write."""

    ranker: Annotated[str, doc("folder or hub id of the ranker (PairRM)")] = "llm-blender/PairRM-hf"
    fuser: Annotated[str, doc("folder or hub id of the fuser (T5)")] = "llm-blender/gen_fuser_3b"
    ranker_revision: Annotated[str | None, doc("commit of the ranker on the hub")] = None
    fuser_revision: Annotated[str | None, doc("commit of the fuser on the hub")] = None
    rank_only: Annotated[bool, doc("take the best answer as it is, and load no fuser")] = False
    bubble: Annotated[
        bool,
        doc(
            "the best is the survivor of one pass over the answers in order of the models, as the"
            " published code can choose it; needs `rank_only`"
        ),
    ] = False
    top_k: Annotated[Positive, doc("how many answers the fuser reads, best first")] = 3
    candidate_tokens: Annotated[
        Positive, doc("the most tokens of an answer that the fuser reads")
    ] = 128
    prompt_tokens: Annotated[Positive, doc("the most tokens of the fuser's prompt")] = 1024
    fused_tokens: Annotated[Positive, doc("the most tokens that the fuser writes")] = 128
    beams: Annotated[Positive, doc("beams of the fuser's search")] = 4
    instruction: Annotated[
        str,
        doc(
            "the first field of the fuser's prompt; the prompt without worked examples is the"
            " second"
        ),
    ] = "Give the best response to the input."

    @model_validator(mode="after")
    def _one_pass_finds_only_the_best(self) -> Self:
        if self.bubble and not self.rank_only:
            raise ValueError("bubble finds only the best answer; set rank_only, too")
        return self
