"""A causal language model with its own tokenizer: one member of an ensemble."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from adafuse.models.prompts import prompt_ids
from adafuse.prompt import Prompt
from adafuse.text.added import Anchor, anchor
from adafuse.text.foreign import SpanEncoder
from adafuse.text.surfaces import Surfaces

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """Model m_k: network, tokenizer and the ids that end a text.

    `end_ids` is EOS_k (generation config and tokenizer together), whose probabilities add up to
    p_k(END); `stop_ids` holds every other special token too: a model that emits one of them is
    taken to have ended. `context` is the number of positions; `chat` asks for the model's own chat
    template around each prompt.
    """

    name: str
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    end_ids: frozenset[int]
    stop_ids: frozenset[int]
    context: int
    chat: bool = False
    encode_span: SpanEncoder = field(init=False)
    vocabulary: int = field(init=False)
    """How many ids have a text; rows of the output layer above it are padding."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "encode_span", SpanEncoder(self.tokenizer, self.name))
        object.__setattr__(self, "vocabulary", len(self.tokenizer))

    @cached_property
    def surfaces(self) -> Surfaces:
        """The bytes of each token; refused where a tokenizer has none (token-level methods)."""
        return Surfaces.read(self.tokenizer, self.name)

    @cached_property
    def device(self) -> "torch.device":
        """Where input ids go."""
        return next(self.network.get_input_embeddings().parameters()).device

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Return the ids of a prompt, with the start token where this tokenizer has one."""
        return prompt_ids(self.tokenizer, prompt, chat=self.chat)

    def anchor(self, ids: Sequence[int]) -> Anchor:
        """Return the place at the end of `ids` that generated text is added to."""
        return anchor(self.tokenizer, ids)
