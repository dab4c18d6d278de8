"""The token of one model that stands for the token of another."""

from typing import TYPE_CHECKING

from adafuse.text.byte_spans import encode_bytes

if TYPE_CHECKING:
    from adafuse.models.language_model import LanguageModel


def first_token(model: "LanguageModel", surface: bytes) -> int | None:
    """Return the token with these bytes, else the first of those that spell them, if any."""
    own = model.surfaces.ids.get(surface)
    if own is not None or not surface:
        return own
    try:
        return encode_bytes(model, surface)[0]
    except ValueError:  # it merges with what is before it, or a byte has no token
        return None
