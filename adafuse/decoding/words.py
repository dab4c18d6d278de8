"""Where a word and a text end, and writing one word (arXiv 2601.06022, section 3.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from pydantic import field_validator

from adafuse.decoding.candidates import Span
from adafuse.engine.node import Program, TokenSequence, evaluated
from adafuse.options import BatchSize, Positive, Section, StrictSection, Text
from adafuse.records.result import StopReason
from adafuse.tokenization.text import LONGEST_CONTEXT, UNFINISHED
from adafuse.tokenization.thoughts import Thoughts


class StopAfter(Section):
    """A stop string that ends a continuation only once another string is in it."""

    string: Text
    """stop string"""
    after: Text
    """what must come before it"""


@dataclass(frozen=True, slots=True)
class StopStrings:
    """The strings that end a continuation; the text is cut before the first of them.

    One of white space applies only after other text: a model may begin with the line break that the
    few-shot examples have there. `before` is the part of the continuation that has no stop string.
    None applies within `thoughts`.
    """

    strings: Sequence[str | StopAfter] = ()
    before: str = ""
    thoughts: Thoughts | None = None

    def within(self, text: str) -> bool:
        """Whether `before` and `text` together hold a stop string."""
        text = self.before + text
        return any(self._start(text, stop) >= 0 for stop in self.strings)

    def cut(self, text: str) -> str:
        """Return the beginning of `text` before the first stop string."""
        return text[: min(self._found(text), default=(len(text),))[0]]

    def through(self, text: str) -> str:
        """Return what of `text`, which follows `before`, is not behind the first stop string."""
        _, end = min(self._found(self.before + text), default=(0, None))
        return text if end is None else text[: end - len(self.before)]

    def _found(self, text: str) -> list[tuple[int, int]]:
        """Return where each stop string begins and ends, of those that are in `text`."""
        strings = [stop if isinstance(stop, str) else stop.string for stop in self.strings]
        starts = (self._start(text, stop) for stop in self.strings)
        found = zip(starts, strings, strict=True)
        return [(start, start + len(string)) for start, string in found if start >= 0]

    def _start(self, text: str, stop: str | StopAfter) -> int:
        begin = 0 if self.thoughts is None else self.thoughts.length(text)
        found = self._first(text[begin:], stop)
        return found if found < 0 else begin + found

    def _first(self, text: str, stop: str | StopAfter) -> int:
        if isinstance(stop, StopAfter):
            first = text.find(stop.after)
            return first if first < 0 else text.find(stop.string, first + len(stop.after))
        return text.find(stop, len(text) - len(text.lstrip()) if stop.isspace() else 0)

    def settled(self, text: str) -> str:
        """Return `text`, which holds no stop string, without the end of it that may become one."""
        strings = [stop if isinstance(stop, str) else stop.string for stop in self.strings]
        longest = max(map(len, strings), default=0)
        for start in range(max(0, len(text) - longest + 1), len(text)):
            if any(string.startswith(text[start:]) for string in strings):
                return text[:start]
        return text


class Limits(StrictSection):
    """What ends a continuation: that many ids in some model, that many rounds, or a stop string."""

    max_new_tokens: Positive = 256
    max_rounds: Positive | None = None
    stop: tuple[str | StopAfter, ...] = ()

    def stop_reason(
        self, *, ended: bool, stopped: bool, tokens: int, rounds: int
    ) -> StopReason | None:
        """Return why a continuation stops, if it does; `tokens` is the most that a model holds."""
        if ended:
            return "eos"
        if stopped:
            return "stop"
        return "length" if tokens >= self.max_new_tokens or rounds == self.max_rounds else None

    @field_validator("stop", mode="before")
    @classmethod
    def _as_strings(cls, value: object) -> object:
        strings = [value] if isinstance(value, str) else value
        if isinstance(strings, list | tuple) and "" in strings:
            raise ValueError("must not hold an empty string, which is in every text")
        return tuple(strings) if isinstance(strings, list) else strings


Draft = Literal["own", "others", "copies", "ahead"]
DRAFTS: tuple[Draft, ...] = get_args(Draft)
"""What `decoding.drafts` guesses."""


class Settings(Limits):
    """How a run decodes: how many examples at a time, with which engine, and what is guessed."""

    batch_size: BatchSize = 8
    engine: Literal["tree", "reference"] = "tree"
    drafts: tuple[Draft, ...] = DRAFTS

    @field_validator("drafts", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


UTF8_BYTES = 4
"""The most byte tokens of one character."""


@dataclass(frozen=True, slots=True)
class WordRules:
    """Decides after each token whether the word is complete.

    Only `hard_limit` ends a word inside a character whose UTF-8 bytes are not all there.
    """

    stops: StopStrings = field(default_factory=StopStrings)
    max_tokens: int = 16
    hard_limit: int | None = None

    def complete(self, text: str, tokens: int) -> bool:
        """Whether the word ends here: at white space, a stop string, or so many tokens."""
        if self.hard_limit is not None and tokens >= self.hard_limit:
            return True
        if text.endswith(UNFINISHED):
            return tokens >= self.max_tokens + UTF8_BYTES - 1
        ends_in_space = bool(text.strip()) and text[-1].isspace()
        return ends_in_space or self.stops.within(text) or tokens >= self.max_tokens

    def ends_before(self, text: str, addition: str) -> bool:
        """Whether the word `text` is whole because the next token begins with white space."""
        finished = bool(text.strip()) and not text.endswith(UNFINISHED)
        return finished and addition[:1].isspace()


def empty_span(sequence: TokenSequence) -> Span:
    """Return the span of no words after the committed text."""
    return Span(nodes={sequence: sequence.root})


def add_word(
    span: Span,
    rules: WordRules,
    first: tuple[int, ...] = (),
    enough: Callable[[str, Sequence[int]], bool] = lambda text, ids: False,
) -> Program[Span]:
    """Extend `span` by one word: the ids `first`, then greedily until it ends, or is `enough`.

    A stop string may begin before the word. A special token ends the word that it follows; as the
    first token it is the word END, which has no text.
    """
    if span.text:
        rules = replace(rules, stops=replace(rules.stops, before=rules.stops.before + span.text))
    node, text, tokens = span.node, "", list[int]()
    model = node.sequence.model
    anchor = model.anchor(node.last_ids(LONGEST_CONTEXT))
    while True:
        yield from evaluated([node])
        assert node.next is not None
        token = first[len(tokens)] if len(tokens) < len(first) else node.next.greedy
        if token in model.end_ids:
            break
        longer = anchor.added([*tokens, token])
        if rules.ends_before(text, longer[len(text) :]):
            break
        node, text = node.child(token), longer
        tokens.append(token)
        if rules.complete(text, len(tokens)) or enough(text, tokens):
            break
    nodes = {node.sequence: node}
    return Span(span.text + text, ends=not tokens, words=span.words + 1, nodes=nodes)


def greedy_words(sequence: TokenSequence, rules: WordRules, words: int) -> Program[Span]:
    """Write up to `words` greedy words; END or a stop string in the text is the last of them."""
    span = empty_span(sequence)
    while span.words < words:
        span = yield from add_word(span, rules)
        if span.ends or rules.stops.within(span.text):
            break
    return span
