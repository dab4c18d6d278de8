"""How a tokenizer writes text that other models wrote (adafuse.md, "Ids of a foreign span")."""

from transformers import PreTrainedTokenizerBase

from adafuse.text.added import anchor
from adafuse.text.foreign import SpanEncoder

SPANS = (
    " word",
    "word",
    "\n",
    "\nline",
    "  two",
    "\ttab",
    " 12,345",
    " Straße",
    " 漢字",
    " 🙂",
    " it's",
)
"""Words with what comes before them, numbers, other scripts, several bytes a character."""
_BEFORE = "Answer"


def odd_spans(tokenizer: PreTrainedTokenizerBase, name: str) -> list[str]:
    """Return those of `SPANS` that come back as another text, or cannot be encoded at all."""
    encode, place = SpanEncoder(tokenizer, name), anchor(tokenizer, tokenizer(_BEFORE)["input_ids"])
    odd = []
    for span in SPANS:
        try:
            exact = place.added(encode(span)) == span
        except ValueError:  # it merges the span with what is before it
            exact = False
        if not exact:
            odd.append(span)
    return odd
