"""Ids that stand for certain bytes, whatever the tokenizer makes of their text."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adafuse.models.language_model import LanguageModel


def encode_bytes(model: "LanguageModel", data: bytes) -> tuple[int, ...]:
    """Return ids of `model` whose surfaces join to `data`, as they would continue a text.

    Whole characters are encoded as text; the bytes of unfinished or odd ones, and characters that
    the tokenizer would change (to a composed form, a space or a special token), one by one.

    Raises:
        ValueError: the tokenizer merges `data` with what is before, or lacks a token for a byte.
    """
    ids: list[int] = []
    while data:
        try:
            end, place = len(data), len(data)
            text = data.decode()
        except UnicodeDecodeError as error:
            place, end = error.start, error.end
            text = data[:place].decode()
        ids += (*_encode_text(model, text), *_single_bytes(model, data[place:end]))
        data = data[end:]
    return tuple(ids)


def _encode_text(model: "LanguageModel", text: str) -> tuple[int, ...]:
    """Encode in halves what does not come back, down to the characters that do not."""
    ids = model.encode_span(text)
    if b"".join(model.surfaces.of[index] or b"" for index in ids) == text.encode():
        return ids
    if len(text) == 1:
        return _single_bytes(model, text.encode())
    half = len(text) // 2
    return (*_encode_text(model, text[:half]), *_encode_text(model, text[half:]))


def _single_bytes(model: "LanguageModel", data: bytes) -> tuple[int, ...]:
    single = model.surfaces.bytes
    if odd := [byte for byte in data if byte not in single]:
        raise ValueError(f"the tokenizer of {model.name} has no token for byte {odd[0]:#04x}")
    return tuple(single[byte] for byte in data)
