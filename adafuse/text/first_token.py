"""The token of one model that stands for the token of another."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adafuse.models.language_model import LanguageModel


def first_token(model: "LanguageModel", surface: bytes) -> int | None:
    """Return the token with these bytes, else the first of those that spell them, if any."""
    own = model.surfaces.ids.get(surface)
    if own is not None or not surface:
        return own
    try:
        return model.encode_span(surface.decode())[0]
    except ValueError:  # an unfinished character, or one that merges with what is before it
        return model.surfaces.bytes.get(surface[0])
