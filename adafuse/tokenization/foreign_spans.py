"""How a tokenizer reads bytes that another model wrote."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adafuse.tokenization.model_tokenizer import ModelTokenizer


def encode_bytes(model: "ModelTokenizer", data: bytes) -> tuple[int, ...]:
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


def _encode_text(model: "ModelTokenizer", text: str) -> tuple[int, ...]:
    """Encode text; a character at which it does not come back is written by itself."""
    ids: list[int] = []
    while text:
        own = model.encode_span(text)
        count, agreed = _agreement([model.surfaces.of[index] for index in own], text.encode())
        ids += own[:count]
        text = text.encode()[agreed:].decode()
        if text:
            ids += _encode_character(model, text[0])
            text = text[1:]
    return tuple(ids)


def _agreement(surfaces: list[bytes | None], data: bytes) -> tuple[int, int]:
    """Return how many tokens, and bytes, join to whole characters that `data` begins with."""
    place, agreed = 0, (0, 0)
    for count, surface in enumerate(surfaces, 1):
        if not surface or not data.startswith(surface, place):
            break
        place += len(surface)
        if place == len(data) or data[place] & 0b1100_0000 != 0b1000_0000:
            agreed = count, place
    return agreed


def _encode_character(model: "ModelTokenizer", character: str) -> tuple[int, ...]:
    ids = model.encode_span(character)
    exact = b"".join(model.surfaces.of[index] or b"" for index in ids) == character.encode()
    return ids if exact else _single_bytes(model, character.encode())


def _single_bytes(model: "ModelTokenizer", data: bytes) -> tuple[int, ...]:
    single = model.surfaces.bytes
    if odd := [byte for byte in data if byte not in single]:
        raise ValueError(f"the tokenizer of {model.name} has no token for byte {odd[0]:#04x}")
    return tuple(single[byte] for byte in data)


def first_token(model: "ModelTokenizer", surface: bytes) -> int | None:
    """Return the token with these bytes, else the first of those that spell them, if any."""
    own = model.surfaces.ids.get(surface)
    if own is not None or not surface:
        return own
    try:
        return encode_bytes(model, surface)[0]
    except ValueError:  # it merges with what is before it, or a byte has no token
        return None
