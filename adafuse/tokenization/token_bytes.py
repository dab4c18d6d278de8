"""The bytes of each token: what vocabularies of different tokenizers are compared by.

Byte-level tokenizers (Llama 3, Qwen, GPT-2) write each byte as a character of the GPT-2 alphabet,
SentencePiece-style ones (Mistral, Llama 2) a space as U+2581 and odd bytes as <0xNN>. Special
tokens have no bytes. Other added tokens are their own text; SentencePiece-style ones have the same
marks in it.
"""

import json
import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
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
    def read(
        cls,
        tokenizer: "PreTrainedTokenizerBase",
        name: str,
        texts: Collection[int] = (),
        count: int | None = None,
    ) -> "TokenBytes":
        """Read a vocabulary; refuse one with a token that does not stand for certain bytes.

        `texts` are special tokens that are part of a text, and so stand for their own bytes. Only
        the first `count` ids are read, by default all.
        """
        added = tokenizer.added_tokens_decoder
        special = special_ids(tokenizer).difference(texts)
        count = id_count(tokenizer) if count is None else count
        pieces: Any = tokenizer.convert_ids_to_tokens(list(range(count)))
        bytes_of = _reader(tokenizer, pieces, name)
        # Decoders see marks in all tokens. Text that pads is a piece.
        literal = () if bytes_of is _sentencepiece else added.keys() - {tokenizer.pad_token_id}
        of: list[bytes | None] = []
        for index, piece in enumerate(pieces):
            if index in special or piece is None:
                of.append(None)
            else:
                of.append(piece.encode() if index in literal else bytes_of(piece))
        numbered = [(data, index) for index, data in enumerate(of) if data]
        single = [pair for pair in numbered if _BYTE_PIECE.fullmatch(pieces[pair[1]])]
        others = [pair for pair in numbered if not _BYTE_PIECE.fullmatch(pieces[pair[1]])]
        # Reversed, so that the first one stays.
        singles = {data[0]: index for data, index in reversed(single + others) if len(data) == 1}
        return cls(tuple(of), dict(reversed(others + single)), singles)


def id_count(tokenizer: "PreTrainedTokenizerBase") -> int:
    """Return the largest id + 1, which is more than `len(tokenizer)` where ids are left out."""
    return _used(tokenizer, len(tokenizer))[0]


def unused_ids(tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
    """Return the ids below the largest one that no token has."""
    return _used(tokenizer, len(tokenizer))[1]


@lru_cache(16)
def _used(tokenizer: "PreTrainedTokenizerBase", _size: int) -> tuple[int, tuple[int, ...]]:
    used = {*tokenizer.get_vocab().values(), *tokenizer.added_tokens_decoder}
    count = max(used, default=-1) + 1
    return count, tuple(index for index in range(count) if index not in used)


def special_ids(tokenizer: "PreTrainedTokenizerBase") -> frozenset[int]:
    """Return the ids of all special tokens, reserved ones included, but text that only pads."""
    added = tokenizer.added_tokens_decoder
    reserved = (index for index, token in added.items() if token.special)
    special = frozenset([*reserved, *tokenizer.all_special_ids])
    return special - {tokenizer.pad_token_id} if _pads_with_text(tokenizer) else special


_MARK = re.compile(r"[<>\[\]{}|\uff5c]|pad", re.IGNORECASE)
"""What special tokens have in their names, such as <unk>, [PAD] or <|endoftext|>."""


def _pads_with_text(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether a word or mark of the vocabulary, such as "!", was chosen as the padding token.

    transformers makes that a special token, but the model writes it in texts.
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    pad = None if backend is None else tokenizer.pad_token
    if pad is None or _MARK.search(pad) or backend.model.token_to_id(pad) is None:
        return False
    named = tokenizer.special_tokens_map.items()
    return pad not in {str(token) for name, token in named if name != "pad_token"}


@lru_cache(16)
def misread_tokens(tokenizer: "PreTrainedTokenizerBase") -> dict[int, str]:
    """Return the text of added tokens whose letters a byte-level decoder takes for bytes, by id.

    Such as "ü" of DeepSeek LLM, which it would write as U+FFFD.
    """
    if not _is_byte_level(_decoders(tokenizer)):
        return {}
    decode, special = tokenizer.backend_tokenizer.decode, special_ids(tokenizer)
    added = {i: t.content for i, t in tokenizer.added_tokens_decoder.items() if i not in special}
    words = {i: text for i, text in added.items() if not _SPACES.search(text)}
    return {i: text for i, text in words.items() if decode([i]) != text}


_SPACES = re.compile("[\u0120\u010a]")
"""How byte-level tokenizers write a space and a line break: what has them is a piece."""


def _decoders(tokenizer: "PreTrainedTokenizerBase") -> list[dict[str, Any]]:
    """Return what makes text of tokens, as tokenizer.json says it."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    state = {"decoders": []} if decoder is None else json.loads(decoder.__getstate__())
    decoders: list[dict[str, Any]] = state.get("decoders", [state])
    return decoders


def _is_byte_level(decoders: Sequence[Mapping[str, Any]]) -> bool:
    return any(decoder["type"] == "ByteLevel" for decoder in decoders)


def _reader(
    tokenizer: "PreTrainedTokenizerBase", pieces: Sequence[str | None], name: str
) -> Callable[[str], bytes]:
    """Return how this kind of tokenizer writes bytes as pieces; its decoder tells the kind."""
    decoders = _decoders(tokenizer)
    if _is_byte_level(decoders):
        return _byte_level(name)
    marks = [decoder for decoder in decoders if decoder["type"] in ("Metaspace", "Replace")]
    if SPACE_MARK in json.dumps(marks, ensure_ascii=False):
        return _sentencepiece
    odd = next((piece for piece in pieces if piece and piece.startswith("##")), None)
    odd = odd or next((piece for piece in pieces if piece), "")
    raise UserError(
        f"the tokenizer of {name!r} does not say which bytes its tokens stand for, such as {odd!r};"
        " use a byte-level or SentencePiece-style model, or a method that fuses words"
    )


def _sentencepiece(piece: str) -> bytes:
    if match := _BYTE_PIECE.fullmatch(piece):
        return bytes([int(match[1], 16)])
    return piece.replace(SPACE_MARK, " ").encode()


def _byte_level(name: str) -> Callable[[str], bytes]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    characters: dict[int, str] = bytes_to_unicode()  # type: ignore[no-untyped-call]
    alphabet = {character: byte for byte, character in characters.items()}

    def bytes_of(piece: str) -> bytes:
        try:
            return bytes(alphabet[character] for character in piece)
        except KeyError as error:
            raise UserError(
                f"token {piece!r} of {name!r} has the character {error.args[0]!r}, which stands for"
                " no byte; fix its tokenizer.json, or use a method that fuses words"
            ) from None

    return bytes_of


END = b""
"""The key of all ids that end a text; every other key has at least one byte."""


@dataclass(frozen=True)
class TokenKeys:
    """`of[id]` is the key of an id, None for an id without bytes; `ids[key]` all ids of a key.

    `token_bytes[id]` are the bytes themselves, of which the key may leave out a leading space.
    """

    of: tuple[bytes | None, ...]
    ids: dict[bytes, tuple[int, ...]] = field(repr=False)
    token_bytes: Sequence[bytes | None] = field(repr=False)

    @classmethod
    def read(
        cls,
        token_bytes: Sequence[bytes | None],
        end_ids: Container[int] = (),
        *,
        begins: bool = False,
    ) -> "TokenKeys":
        """Return the keys of a vocabulary, of whose ids `end_ids` are its END.

        `begins` is for the first token after chat templates, see `without_space`.
        """
        keys = [without_space(data) if begins and data else data for data in token_bytes]
        of = tuple(END if index in end_ids else key or None for index, key in enumerate(keys))
        ids: dict[bytes, list[int]] = {}
        for index, key in enumerate(of):
            if key is not None:
                ids.setdefault(key, []).append(index)
        return cls(of, {key: tuple(group) for key, group in ids.items()}, token_bytes)


def without_space(data: bytes) -> bytes:
    """Return the bytes of a token without one leading space, unless it is all whitespace.

    After some chat templates an answer begins with a space, after others it does not; the first
    words of all models meet under this key.
    """
    return data[1:] if data.startswith(b" ") and data.strip() else data


def written(key: bytes, keys: Sequence[TokenKeys], vectors: Sequence["torch.Tensor"]) -> bytes:
    """Return the bytes to write for a key at the first position: those of its likeliest token.

    `vectors` are each model's log-probabilities, shape [vocabulary of that model].
    """
    tokens = [
        (float(vector[index]), vocabulary.token_bytes[index] or END)
        for vocabulary, vector in zip(keys, vectors, strict=True)
        for index in vocabulary.ids.get(key, ())
    ]
    return key and max(tokens, key=lambda token: token[0], default=(0.0, key))[1]
