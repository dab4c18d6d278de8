"""How ids become text and text becomes ids: a model's own text, and spans of other models."""

import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property, lru_cache, partial
from itertools import accumulate, chain, groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from adafuse.errors import UserError
from adafuse.records.result import CHAT_DATE, Prompt
from adafuse.tokenization.prompts import common, ids_after, prompt_ids, thought_marks, turn_end
from adafuse.tokenization.token_bytes import (
    TokenBytes,
    id_count,
    misread_tokens,
    special_ids,
    unused_ids,
)

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedConfig, PreTrainedTokenizerBase

UNFINISHED = "\ufffd"
"""What a decoder writes for the bytes of a character that is not complete yet."""

LONGEST_CHARACTER = 4
"""Of so many bytes, and so of so many tokens at most, is a character."""

LONGEST_CONTEXT = 64
"""How many ids an anchor looks back at most."""

_CONTEXT_SIZES = (4, 8, 16, 32, *range(LONGEST_CONTEXT, LONGEST_CONTEXT - LONGEST_CHARACTER, -1))
"""One of the last begins with a character also in a run of byte tokens."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The last few ids before a position, and their text: the place that new text is added to.

    New ids decoded by themselves are wrong for tokenizers with a dummy prefix (they drop the first
    space) and inside a character, so `added` decodes them after this context and cuts its text off.
    """

    tokenizer: "PreTrainedTokenizerBase"
    context: tuple[int, ...]
    text: str

    def added(self, new_ids: Sequence[int]) -> str:
        """Return the text that `new_ids` add; it ends in U+FFFD while a character is unfinished."""
        return _decode(self.tokenizer, [*self.context, *new_ids])[len(self.text) :]

    def begun(self, new_ids: Sequence[int]) -> str:
        """Return what `added` does, but one U+FFFD for a whole character that is unfinished.

        Some tokenizers write one for each byte, and for those of the whole characters before it.
        """
        text = self.added(new_ids)
        if text.endswith(UNFINISHED):
            for size in range(len(new_ids) - 1, len(new_ids) - LONGEST_CHARACTER, -1):
                if not (before := self.added(new_ids[: max(0, size)])).endswith(UNFINISHED):
                    return before + UNFINISHED
        return text

    def length_in(self, text: str, new_ids: Sequence[int], count: int) -> int:
        """Return how many characters of a text that `new_ids` wrote the first `count` of them hold.

        What they write differently from the text (a composed letter, the space after a chat
        template, bytes that are no character) counts only once its last token is among them.
        """
        whole = self.added(new_ids)
        size, same = common(self.begun(new_ids[:count]), whole), common(whole, text)
        if min(size, len(text)) <= same:
            return min(size, len(text))
        blocks = SequenceMatcher(None, whole, text, autojunk=False).get_opcodes()
        kind, begin, end, start, stop = next(block for block in blocks if size <= block[2])
        if kind == "equal":
            return start + size - begin
        return stop if kind == "replace" and size == end else start


def anchor(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> Anchor:
    """Anchor at the end of `ids` (prompt included), with as few of them as decode cleanly.

    A window that cuts a character in two would decode to U+FFFD, and with byte tokens spoil what
    follows, so another one is taken, unless all do.
    """
    for size in (*_CONTEXT_SIZES, LONGEST_CONTEXT):
        context = tuple(ids[-size:])
        text = _decode(tokenizer, context)
        if UNFINISHED not in text or size > len(ids):
            break
    return Anchor(tokenizer, context, text)


def _decode(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> str:
    misread = misread_tokens(tokenizer)
    if misread.keys().isdisjoint(ids):
        return _decoded(tokenizer, ids)
    runs = (list(run) for _, run in groupby(ids, misread.__contains__))
    return "".join(
        "".join(map(misread.__getitem__, run)) if run[0] in misread else _decoded(tokenizer, run)
        for run in runs
    )


def _decoded(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> str:
    from transformers import TokenizersBackend

    if getattr(type(tokenizer), "_decode", None) is TokenizersBackend._decode:
        decode = tokenizer.backend_tokenizer.decode  # what it comes to, at half the cost
    else:
        decode = partial(tokenizer.decode, clean_up_tokenization_spaces=False)
    return str(decode(list(ids), skip_special_tokens=False))


def span_encoder(
    tokenizer: "PreTrainedTokenizerBase",
    name: str,
    rows: int | None = None,
    marks: Collection[int] = (),
) -> Callable[[str], tuple[int, ...]]:
    """Return what encodes spans as they would continue a text, and remembers the last ones.

    A span is encoded after an anchor: "a" before whitespace, else a newline; the ids after the
    anchor's own are the span's. What reads like a special token, such as "<s>" in HTML, is text
    that another model wrote, but for the `marks` around thoughts. It raises ValueError where the
    tokenizer merges anchor and span, and where the network has only `rows` rows and none for one of
    the ids.
    """
    special = special_ids(tokenizer).difference(marks)

    @lru_cache(1 << 16)
    def encode(span: str) -> tuple[int, ...]:
        before = "a" if span[:1].isspace() else "\n"
        anchor_ids = tokenizer.encode(before, add_special_tokens=False)
        ids = tokenizer.encode(before + span, add_special_tokens=False)
        if not special.isdisjoint(ids[len(anchor_ids) :]):
            ids = tokenizer.encode(
                before + span, add_special_tokens=False, split_special_tokens=True
            )
        if ids[: len(anchor_ids)] != anchor_ids:
            raise ValueError(
                f"the tokenizer of {name} merges the span {span!r} with the text before it"
                f" ({before!r} is {anchor_ids}, together they start with {ids[:4]})"
            )
        return tuple(_with_rows(tokenizer, name, rows, ids[len(anchor_ids) :]))

    return encode


def _with_rows(
    tokenizer: "PreTrainedTokenizerBase", name: str, rows: int | None, ids: list[int]
) -> list[int]:
    """Return the ids; a special token without a row would end the forward of a whole batch."""
    if rows is not None and max(ids, default=0) >= rows:
        token = tokenizer.convert_ids_to_tokens(max(ids))
        raise ValueError(f"the text has the special token {token!r}, which {name} has no row for")
    return ids


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelTokenizer:
    """A model's tokenizer and the ids that end a text.

    `end_ids` is EOS_k: a model that emits one of them has ended, and their probabilities add up to
    p_k(END); each has where it is from, see `end_ids`. `chat` asks for the model's own chat
    template around each prompt, to which `chat_date` is today, and which gets the variables
    `chat_template_kwargs`. `thoughts` has what begins and ends those of the model; without it, the
    template does. Ids below `rows` have embeddings (None: all); those of special tokens may lie
    above.
    """

    name: str
    tokenizer: "PreTrainedTokenizerBase"
    end_ids: Mapping[int, str]
    chat: bool = False
    chat_date: str = CHAT_DATE
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    thoughts: Mapping[str, str] = field(default_factory=dict)
    rows: int | None = None

    @cached_property
    def encode_span(self) -> Callable[[str], tuple[int, ...]]:
        """Encodes spans that another model wrote."""
        marks = mark_ids(self.tokenizer, self.thoughts)
        return span_encoder(self.tokenizer, self.name, self.rows, marks)

    @cached_property
    def vocabulary(self) -> int:
        """The largest id of a token with a row + 1; output rows above it are padding."""
        return min(id_count(self.tokenizer), sys.maxsize if self.rows is None else self.rows)

    @cached_property
    def unused_ids(self) -> tuple[int, ...]:
        """The ids below `vocabulary` without a token; their rows are padding, too."""
        return tuple(index for index in unused_ids(self.tokenizer) if index < self.vocabulary)

    @cached_property
    def token_bytes(self) -> TokenBytes:
        """The bytes of each token; refused where a tokenizer has none (token-level methods)."""
        marks = mark_ids(self.tokenizer, self.thoughts)
        return TokenBytes.read(self.tokenizer, self.name, marks, self.vocabulary)

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """Return the ids of a prompt, with the start token where this tokenizer has one."""
        day, variables = self.chat_date, self.chat_template_kwargs
        ids = prompt_ids(self.tokenizer, prompt, variables, chat=self.chat, today=day)
        return _with_rows(self.tokenizer, self.name, self.rows, ids)

    def document_ids(self, text: str) -> tuple[list[int], list[int]]:
        """Return the id that a document begins after, and those of the text that begins it.

        As lm-evaluation-harness has it, that is the start token, added by default or not, else the
        end token; a text that begins with it has it once.
        """
        start, end = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        first = next((i for i in (start, end) if isinstance(i, int)), next(iter(self.end_ids)))
        ids = ids_after(self.tokenizer, [first], text)
        return [first], _with_rows(self.tokenizer, self.name, self.rows, ids)

    def anchor(self, ids: Sequence[int]) -> Anchor:
        """Return the place at the end of `ids` that generated text is added to."""
        return anchor(self.tokenizer, ids)


def mark_ids(tokenizer: "PreTrainedTokenizerBase", thoughts: Mapping[str, str]) -> frozenset[int]:
    """Return the added tokens in the marks around thoughts, which are text and not END."""
    marks = "".join(thought_marks(tokenizer, thoughts) or ())
    ids = tokenizer.encode(marks, add_special_tokens=False)
    return frozenset(ids).intersection(tokenizer.added_tokens_decoder)


SPECIAL = "special token"
"""Where an end id is from that nothing names."""


def end_ids(
    config: "PreTrainedConfig",
    generation: "GenerationConfig | None",
    tokenizer: "PreTrainedTokenizerBase",
    name: str,
    gguf: Sequence[int] = (),
    thoughts: Mapping[str, str] = MappingProxyType({}),
) -> dict[int, str]:
    """Return EOS_k, what a model ends with, and where each id is from.

    Those are the end ids that its generation config, config and tokenizer name, `gguf` the ones of
    a GGUF file, the token by which its chat template ends a turn, and all other special tokens. No
    token of the marks around thoughts is one, because a text would end there without an answer, nor
    one that the network has no row for.

    Raises:
        UserError: nothing but special tokens could end a text.
    """
    sources = {
        "generation config": _file_ids(generation, config),
        "config": _config_ids(config, tokenizer),
        "tokenizer": _as_ids(tokenizer.eos_token_id),
        "GGUF": list(gguf),
        "chat template": turn_end(tokenizer),
    }
    inside = mark_ids(tokenizer, thoughts)
    count = min(id_count(tokenizer), config.get_text_config().vocab_size)
    known = {key: [i for i in ids if 0 <= i < count] for key, ids in sources.items()}
    special = [index for index in sorted(special_ids(tokenizer)) if index < count]
    if inside.issuperset(chain(*known.values())):
        but = " other than those around its thoughts" if any(known.values()) else ""
        raise UserError(
            f"model {name!r} has no end token{but}; set eos_token_id in its generation_config.json"
            " or eos_token in its tokenizer_config.json"
        )
    ends: dict[int, str] = {}
    for source, ids in {**known, SPECIAL: special}.items():
        ends |= {index: source for index in ids if index not in ends and index not in inside}
    return ends


def _as_ids(value: object) -> list[int]:
    return [i for i in (value if isinstance(value, list) else [value]) if isinstance(i, int)]


def _file_ids(generation: "GenerationConfig | None", config: "PreTrainedConfig") -> list[int]:
    """Return the end ids of a generation config, but those that it was made with from a config."""
    named = getattr(generation, "eos_token_id", None)
    parts = (config, config.get_text_config())
    made = [getattr(part, "eos_token_id", None) for part in parts]
    copied = getattr(generation, "_from_model_config", False) and named in made
    return [] if copied else _as_ids(named)


def _config_ids(config: "PreTrainedConfig", tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return the end ids of a config, but no ordinary token that is only its class's default."""
    ids: list[int] = []
    for part in (config, config.get_text_config()):
        named = getattr(part, "eos_token_id", None)
        default = getattr(type(part), "eos_token_id", None)
        ids += _as_ids(named) if named != default else _added(tokenizer, _as_ids(named))
    return ids


def _added(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> list[int]:
    return [index for index in ids if index in tokenizer.added_tokens_decoder]


def whole_characters(model: "ModelTokenizer", text: str, ids: Sequence[int]) -> str:
    """Return a text that ends with the last of `ids` without a character that they only begin.

    Some tokenizers write a mark for each byte of a run that is not complete, whole characters
    included, so that the last ids are decoded again.
    """
    if not text.endswith(UNFINISHED):
        return text
    try:
        written = [model.token_bytes.of[index] or b"" for index in ids[-3:]]
    except UserError:  # the bytes of its tokens are not known
        return text.rstrip(UNFINISHED)
    decoder = getincrementaldecoder("utf-8")("replace")
    decoder.decode(b"".join(written))
    missing = len(decoder.getstate()[0])
    sizes = list(accumulate(map(len, reversed(written))))
    begun = sum(size <= missing for size in sizes)
    if missing not in sizes:  # none, or a token that also ends what is before
        return text.removesuffix(UNFINISHED) if missing else text
    for size in range(begun + 1, len(ids)):
        place = model.anchor(ids[:-size])
        odd = place.added(ids[-size:])
        if text.endswith(odd) and (odd == text or not odd.startswith(UNFINISHED)):
            return text.removesuffix(odd) + place.added(ids[-size:-begun])
    return text.rstrip(UNFINISHED)


def encode_bytes(model: "ModelTokenizer", data: bytes) -> tuple[int, ...]:
    """Return ids of `model` whose bytes join to `data`, as they would continue a text.

    Whole characters are encoded as text; the bytes of unfinished or odd ones, and characters that
    the tokenizer would change (to a composed form, a space or a special token), one by one.

    Raises:
        ValueError: the tokenizer merges `data` with what is before, or lacks a token for a byte.
    """
    ids: list[int] = []
    while data:
        try:
            text, size = data.decode(), 0
        except UnicodeDecodeError as error:
            text, size = data[: error.start].decode(), error.end - error.start
        span_ids = model.encode_span(text)
        count, end = _agreement([model.token_bytes.of[index] for index in span_ids], text.encode())
        ids += span_ids[:count]
        if changed := text.encode()[end:].decode()[:1]:
            size = len(changed.encode())
        rest, data = data[end : end + size], data[end + size :]
        span_ids = model.encode_span(changed)
        exact = b"".join(model.token_bytes.of[index] or b"" for index in span_ids) == rest
        ids += span_ids if exact else _single_bytes(model, rest)
    return tuple(ids)


def _agreement(token_bytes: Sequence[bytes | None], data: bytes) -> tuple[int, int]:
    """Return how many tokens, and bytes, join to whole characters that `data` begins with."""
    end, agreed = 0, (0, 0)
    for count, piece in enumerate(token_bytes, 1):
        if not piece or not data.startswith(piece, end):
            break
        end += len(piece)
        if end == len(data) or data[end] & 0b1100_0000 != 0b1000_0000:
            agreed = count, end
    return agreed


def _single_bytes(model: "ModelTokenizer", data: bytes) -> tuple[int, ...]:
    single = model.token_bytes.bytes
    if odd := [byte for byte in data if byte not in single]:
        raise ValueError(f"the tokenizer of {model.name} has no token for byte {odd[0]:#04x}")
    return tuple(single[byte] for byte in data)


def first_token(model: "ModelTokenizer", token_bytes: bytes) -> int | None:
    """Return the token with these bytes, else the first of those that spell them, if any."""
    whole = model.token_bytes.ids.get(token_bytes)
    if whole is not None or not token_bytes:
        return whole
    try:
        return encode_bytes(model, token_bytes)[0]
    except ValueError:  # it merges with what is before it, or a byte has no token
        return None
