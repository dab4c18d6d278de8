"""The tokenizer half of a model: prompts, spans of other models, and which ids end a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from adafuse.errors import UserError
from adafuse.records import Prompt
from adafuse.tokenization.prompts import prompt_ids
from adafuse.tokenization.text import Anchor, anchor
from adafuse.tokenization.token_bytes import Surfaces

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase


REMEMBERED = 1 << 16
"""So many spans at most are not encoded again."""


class SpanEncoder:
    """Encodes spans as they would continue a text, each once while it is remembered.

    The span is encoded after an anchor that it cannot merge with: "a" before whitespace, else a
    newline; the ids after the anchor's own are the span's.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", name: str) -> None:
        self._tokenizer = tokenizer
        self._name = name
        self._remembered = lru_cache(REMEMBERED)(self._encode_after_anchor)

    def __call__(self, span: str) -> tuple[int, ...]:
        """Return the ids of `span`.

        Raises:
            ValueError: the tokenizer merges the anchor with the span.
        """
        return self._remembered(span) if span else ()

    def _encode_after_anchor(self, span: str) -> tuple[int, ...]:
        before = "a" if span[0].isspace() else "\n"
        anchor_ids = self._encode(before)
        ids = self._encode(before + span)
        if ids[: len(anchor_ids)] != anchor_ids:
            raise ValueError(
                f"the tokenizer of {self._name} merges the span {span!r} with the text before it"
                f" ({before!r} is {anchor_ids}, together they start with {ids[:4]})"
            )
        return tuple(ids[len(anchor_ids) :])

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelTokenizer:
    """A model's tokenizer and the ids that end a text.

    `end_ids` is EOS_k (generation config and tokenizer together), whose probabilities add up to
    p_k(END); `stop_ids` holds every other special token too: a model that emits one of them is
    taken to have ended. `chat` asks for the model's own chat template around each prompt.
    """

    name: str
    tokenizer: "PreTrainedTokenizerBase"
    end_ids: frozenset[int]
    stop_ids: frozenset[int]
    chat: bool = False

    @cached_property
    def encode_span(self) -> SpanEncoder:
        """Encodes spans that another model wrote."""
        return SpanEncoder(self.tokenizer, self.name)

    @cached_property
    def vocabulary(self) -> int:
        """How many ids have a text; rows of the output layer above it are padding."""
        return len(self.tokenizer)

    @cached_property
    def surfaces(self) -> Surfaces:
        """The bytes of each token; refused where a tokenizer has none (token-level methods)."""
        return Surfaces.read(self.tokenizer, self.name)

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Return the ids of a prompt, with the start token where this tokenizer has one."""
        return prompt_ids(self.tokenizer, prompt, chat=self.chat)

    def anchor(self, ids: Sequence[int]) -> Anchor:
        """Return the place at the end of `ids` that generated text is added to."""
        return anchor(self.tokenizer, ids)


def end_ids(
    generation: "GenerationConfig | None", tokenizer: "PreTrainedTokenizerBase", name: str
) -> frozenset[int]:
    """Return EOS_k: the end ids that the generation config and the tokenizer name together.

    Raises:
        UserError: neither of them names any.
    """
    named = [getattr(generation, "eos_token_id", None), tokenizer.eos_token_id]
    ids = [each if isinstance(each, list) else [each] for each in named]
    found = frozenset(i for each in ids for i in each if i is not None and i < len(tokenizer))
    if not found:
        raise UserError(
            f"model {name!r} names no end token; set eos_token_id in its generation_config.json"
            " or eos_token in its tokenizer_config.json"
        )
    return found
