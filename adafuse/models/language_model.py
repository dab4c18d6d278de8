"""Which ids end a text (adafuse.md, "State": EOS_k)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from adafuse.errors import UserError
from adafuse.records import Prompt
from adafuse.tokenization.added_text import Anchor, anchor
from adafuse.tokenization.foreign_spans import SpanEncoder
from adafuse.tokenization.prompts import prompt_ids
from adafuse.tokenization.token_bytes import Surfaces

if TYPE_CHECKING:
    import torch


def end_ids(
    generation: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase, name: str
) -> set[int]:
    """Return EOS_k: the end ids that the generation config and the tokenizer name together."""
    found = _as_ids(getattr(generation, "eos_token_id", None)) | _as_ids(tokenizer.eos_token_id)
    found = {index for index in found if index < len(tokenizer)}
    if not found:
        raise UserError(
            f"model {name!r} names no end token; set eos_token_id in its generation_config.json"
            " or eos_token in its tokenizer_config.json"
        )
    return found


def special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the ids of all special tokens, reserved ones included."""
    added = tokenizer.added_tokens_decoder
    reserved = {index for index, token in added.items() if token.special}
    return reserved | set(tokenizer.all_special_ids)


def _as_ids(value: int | list[int] | None) -> set[int]:
    if value is None:
        return set()
    return {value} if isinstance(value, int) else set(value)


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
