"""The bytes of each token: what vocabularies of different tokenizers are compared by.

Byte-level tokenizers (Llama 3, Qwen, GPT-2) write each byte as a character of the GPT-2 alphabet,
SentencePiece-style ones (Mistral, Llama 2) a space as U+2581 and odd bytes as <0xNN>. Special
tokens have no bytes; other added tokens are their own text.
"""

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from adafuse.errors import UserError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

SPACE_MARK = "\u2581"
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class TokenBytes:
    """`of[id]` is the token's bytes, None for special tokens and ids without one.

    `ids` finds the token of some bytes: the lowest id, but a byte token such as <0x41> only where
    no piece has these bytes. `bytes` finds the token of a single byte, a byte token first.
    """

    of: tuple[bytes | None, ...]
    ids: dict[bytes, int] = field(repr=False)
    bytes: dict[int, int] = field(repr=False)

    @classmethod
    def read(cls, tokenizer: "PreTrainedTokenizerBase", name: str) -> "TokenBytes":
        """Read the bytes of a tokenizer's vocabulary.

        Raises:
            UserError: some token does not stand for certain bytes; the message names it.
        """
        added = tokenizer.added_tokens_decoder
        special = special_ids(tokenizer)
        pieces = _pieces(tokenizer)
        surface = _reader(tokenizer, pieces, name)
        found: list[bytes | None] = []
        for index, piece in enumerate(pieces):
            if index in special or piece is None:
                found.append(None)
            else:
                found.append(added[index].content.encode() if index in added else surface(piece))
        is_byte = [bool(piece and _BYTE_PIECE.fullmatch(piece)) for piece in pieces]
        return cls(tuple(found), _first(found, is_byte), _single_bytes(found, is_byte))

    def __len__(self) -> int:
        return len(self.of)


def special_ids(tokenizer: "PreTrainedTokenizerBase") -> frozenset[int]:
    """Return the ids of all special tokens, reserved ones included."""
    added = tokenizer.added_tokens_decoder
    reserved = (index for index, token in added.items() if token.special)
    return frozenset([*reserved, *tokenizer.all_special_ids])


def _pieces(tokenizer: "PreTrainedTokenizerBase") -> list[str | None]:
    pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    assert isinstance(pieces, list)
    return [*pieces]


def _first(found: list[bytes | None], is_byte: list[bool]) -> dict[bytes, int]:
    ids: dict[bytes, int] = {}
    for index in sorted(range(len(found)), key=lambda index: (is_byte[index], index)):
        surface = found[index]
        if surface:
            ids.setdefault(surface, index)
    return ids


def _single_bytes(found: list[bytes | None], is_byte: list[bool]) -> dict[int, int]:
    ids: dict[int, int] = {}
    for index in sorted(range(len(found)), key=lambda index: (not is_byte[index], index)):
        surface = found[index]
        if surface and len(surface) == 1:
            ids.setdefault(surface[0], index)
    return ids


def _reader(
    tokenizer: "PreTrainedTokenizerBase", pieces: list[str | None], name: str
) -> Callable[[str], bytes]:
    """Return how this kind of tokenizer writes bytes as pieces; its decoder tells the kind."""
    kinds = list(_decoders(tokenizer))
    types = {kind["type"] for kind in kinds}
    if "ByteLevel" in types:
        return lambda piece: _byte_level(piece, name)
    marks = [kind for kind in kinds if kind["type"] in ("Metaspace", "Replace")]
    if marks and any(SPACE_MARK in json.dumps(kind, ensure_ascii=False) for kind in marks):
        return _sentencepiece
    odd = next((piece for piece in pieces if piece and piece.startswith("##")), None)
    odd = odd or next((piece for piece in pieces if piece), "")
    raise UserError(
        f"the tokenizer of {name!r} does not say which bytes its tokens stand for, {odd!r} for one;"
        " use a byte-level or SentencePiece-style model, or a method that fuses words"
    )


def _decoders(tokenizer: "PreTrainedTokenizerBase") -> Iterator[dict[str, Any]]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = getattr(backend, "decoder", None)
    if decoder is not None:
        stated = json.loads(decoder.__getstate__())
        yield from stated["decoders"] if stated["type"] == "Sequence" else [stated]


def _sentencepiece(piece: str) -> bytes:
    if match := _BYTE_PIECE.fullmatch(piece):
        return bytes([int(match[1], 16)])
    return piece.replace(SPACE_MARK, " ").encode()


def _byte_level(piece: str, name: str) -> bytes:
    alphabet = _gpt2_alphabet()
    try:
        return bytes(alphabet[character] for character in piece)
    except KeyError as error:
        raise UserError(
            f"token {piece!r} of {name!r} has the character {error.args[0]!r}, which stands for no"
            " byte; mend its tokenizer.json, or use a method that fuses words"
        ) from None


@cache
def _gpt2_alphabet() -> dict[str, int]:
    """Printable Latin-1 stands for itself; the other bytes are the characters from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(0x100 + place): byte for place, byte in enumerate(others)
    }


END = b""
"""The key of all ids that end a text; every other key has at least one byte."""


@dataclass(frozen=True)
class TokenKeys:
    """`of[id]` is the key of an id, None for an id without bytes; `ids[key]` all ids of a key.

    `token_bytes[id]` are the bytes themselves, which the key may say without a leading space.
    """

    of: tuple[bytes | None, ...]
    ids: dict[bytes, tuple[int, ...]] = field(repr=False)
    token_bytes: Sequence[bytes | None] = field(repr=False, default=())

    @classmethod
    def read(
        cls, token_bytes: TokenBytes, stop_ids: Container[int], *, begins: bool = False
    ) -> "TokenKeys":
        """Return the keys of a vocabulary; every special token of it is its END.

        Args:
            token_bytes: of the vocabulary.
            stop_ids: its special tokens.
            begins: for the first token after chat templates, see `without_space`.
        """
        of: Iterable[bytes | None] = token_bytes.of
        if begins:
            of = (surface and without_space(surface) for surface in of)
        return replace(cls.of_surfaces(of, stop_ids), token_bytes=token_bytes.of)

    @classmethod
    def of_surfaces(
        cls, token_bytes: Iterable[bytes | None], stop_ids: Container[int] = ()
    ) -> "TokenKeys":
        """Return the keys of a vocabulary that is given as the bytes of each id."""
        keys = [END if i in stop_ids else each or None for i, each in enumerate(token_bytes)]
        ids: dict[bytes, list[int]] = {}
        for index, key in enumerate(keys):
            if key is not None:
                ids.setdefault(key, []).append(index)
        return cls(tuple(keys), {key: tuple(group) for key, group in ids.items()})


def without_space(surface: bytes) -> bytes:
    """Return a surface without one leading space, unless it is all whitespace.

    Behind some chat templates an answer begins with a space, behind others it does not; the first
    words of all models meet under this key.
    """
    return surface[1:] if surface.startswith(b" ") and surface.strip() else surface


def written(key: bytes, keys: Sequence[TokenKeys], vectors: Sequence["torch.Tensor"]) -> bytes:
    """Return the bytes to write for a key at the first position: those of its likeliest token.

    Args:
        key: what the models met under.
        keys: of each model.
        vectors: each model's log-probabilities, shape [vocabulary of that model].
    """
    tokens = [
        (float(vector[index]), own.token_bytes[index] or END)
        for own, vector in zip(keys, vectors, strict=True)
        for index in own.ids.get(key, ())
    ]
    return key and max(tokens, key=lambda token: token[0], default=(0.0, key))[1]
