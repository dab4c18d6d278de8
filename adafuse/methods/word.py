"""Generating one word with one model (adafuse.md, "Word")."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adafuse.engine.node import Node
from adafuse.engine.node import Sequence as TokenSequence
from adafuse.engine.program import Program, evaluated
from adafuse.text.added import LONGEST_CONTEXT
from adafuse.text.words import WordRules


@dataclass(frozen=True, slots=True)
class Span:
    """Text that a model wrote from the root of its tree down to `node`.

    `ends` says that the model ended its text there; `words` counts the words, END included.
    """

    node: Node
    text: str = ""
    ends: bool = False
    words: int = 0


Enough = Callable[[str, Sequence[int]], bool]
"""Whether a part of a word, its text and its ids, is all that is wanted."""


def never(text: str, ids: Sequence[int]) -> bool:
    """Want whole words."""
    return False


def add_word(
    span: Span, rules: WordRules, first: tuple[int, ...] = (), enough: Enough = never
) -> Program[Span]:
    """Extend `span` by one word: the ids `first`, then greedily until the word ends, or `enough`.

    A next token that ends the text ends the word before it; at the start of the word it is the
    word (END, without text).
    """
    node, text, tokens = span.node, "", list[int]()
    model = node.sequence.model
    anchor = model.anchor(node.last_ids(LONGEST_CONTEXT))
    while True:
        yield from evaluated([node])
        assert node.next is not None
        token = first[len(tokens)] if len(tokens) < len(first) else node.next.greedy
        if token in model.stop_ids:
            break
        longer = anchor.added([*tokens, token])
        if rules.ends_before(text, longer[len(text) :]):
            break
        node, text = node.child(token), longer
        tokens.append(token)
        if rules.complete(text, len(tokens)) or enough(text, tokens):
            break
    return Span(node, span.text + text, ends=not tokens, words=span.words + 1)


def greedy_words(sequence: TokenSequence, rules: WordRules, words: int) -> Program[Span]:
    """Write up to `words` greedy words; END or a stop string in the text is the last of them."""
    span = Span(sequence.root)
    while span.words < words:
        span = yield from add_word(span, rules)
        if span.ends or rules.stops.within(span.text):
            break
    return span
