"""Ids of a span that another model wrote (adafuse.md, "Ids of a foreign span")."""

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


REMEMBERED = 1 << 16
"""So many spans at most are not encoded again."""


class SpanEncoder:
    """Encodes spans as they would continue a text, each once while it is remembered.

    The span is encoded behind an anchor that it cannot merge with: "a" before whitespace, else a
    newline; the ids behind the anchor's own are the span's.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", name: str) -> None:
        self._tokenizer = tokenizer
        self._name = name
        self._remembered = lru_cache(REMEMBERED)(self._encode_behind_anchor)

    def __call__(self, span: str) -> tuple[int, ...]:
        """Return the ids of `span`.

        Raises:
            ValueError: the tokenizer merges the anchor with the span.
        """
        return self._remembered(span) if span else ()

    def _encode_behind_anchor(self, span: str) -> tuple[int, ...]:
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
