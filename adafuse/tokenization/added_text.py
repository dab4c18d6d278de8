"""The text that newly generated ids add to a text (adafuse.md, "Text of tokens")."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

UNFINISHED = "\ufffd"
"""What a decoder writes for the bytes of a character that is not complete yet."""

LONGEST_CONTEXT = 64
"""How many ids an anchor looks back at most."""

_CONTEXT_SIZES = (4, 8, 16, 32, LONGEST_CONTEXT)


@dataclass(frozen=True, slots=True)
class Anchor:
    """The last few ids before a position, and their text: the place that new text is added to.

    Decoding new ids alone is wrong for tokenizers with a dummy prefix (they drop the first space)
    and inside a character, so `added` decodes them behind this context and cuts its text off.
    """

    tokenizer: "PreTrainedTokenizerBase"
    context: tuple[int, ...]
    text: str

    def added(self, new_ids: Sequence[int]) -> str:
        """Return the text that `new_ids` add; it ends in U+FFFD while a character is unfinished."""
        return _decode(self.tokenizer, [*self.context, *new_ids])[len(self.text) :]


def anchor(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> Anchor:
    """Anchor at the end of `ids` (prompt included), with as few of them as decode cleanly.

    A window that cuts a character in two would decode to U+FFFD, and with byte tokens spoil what
    follows, so it is widened until it does not.
    """
    context: tuple[int, ...] = ()
    text = ""
    for size in _CONTEXT_SIZES:
        context = tuple(ids[-size:])
        text = _decode(tokenizer, context)
        if UNFINISHED not in text or size >= len(ids):
            break
    return Anchor(tokenizer, context, text)


def _decode(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> str:
    kind: Any = type(tokenizer)
    if _decodes_plainly(kind):
        # What `decode` comes to, without as much again around it.
        backend = tokenizer.backend_tokenizer
        return str(backend.decode(list(ids), skip_special_tokens=False))
    text = tokenizer.decode(
        list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    assert isinstance(text, str)
    return text


@cache
def _decodes_plainly(kind: Hashable) -> bool:
    from transformers import TokenizersBackend

    return getattr(kind, "_decode", None) is TokenizersBackend._decode
