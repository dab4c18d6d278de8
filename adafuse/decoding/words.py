"""Where a word ends, and generating one word with one model (arXiv 2601.06022, section 3.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from adafuse.decoding.candidates import Candidate
from adafuse.decoding.limits import StopStrings
from adafuse.engine.node import TokenSequence
from adafuse.engine.program import Program, evaluated
from adafuse.tokenization.added_text import LONGEST_CONTEXT, UNFINISHED

UTF8_BYTES = 4
"""The most bytes, and so the most byte tokens, of one character."""


@dataclass(frozen=True, slots=True)
class WordRules:
    """Decides after each token whether the word is complete.

    `max_tokens` is the cap for text without spaces; a character that is being spelled in bytes at
    the cap is finished first. `hard_limit` cuts even that (None: no limit).
    """

    stops: StopStrings = field(default_factory=StopStrings)
    max_tokens: int = 16
    hard_limit: int | None = None

    def complete(self, text: str, tokens: int) -> bool:
        """Whether the word `text` of `tokens` ids ends here whatever follows (rules 2, 4, 5)."""
        if self.hard_limit is not None and tokens >= self.hard_limit:
            return True
        if text.endswith(UNFINISHED):
            return tokens >= self.max_tokens + UTF8_BYTES - 1
        ends_in_space = bool(text.strip()) and text[-1].isspace()
        return ends_in_space or self.stops.within(text) or tokens >= self.max_tokens

    def ends_before(self, text: str, addition: str) -> bool:
        """Whether the word `text` ends because the next token adds `addition` (rule 3)."""
        finished = bool(text.strip()) and not text.endswith(UNFINISHED)
        return finished and addition[:1].isspace()


Enough = Callable[[str, Sequence[int]], bool]
"""Whether a part of a word, its text and its ids, is all that is wanted."""


def never(text: str, ids: Sequence[int]) -> bool:
    """Want whole words."""
    return False


def unwritten(sequence: TokenSequence) -> Candidate:
    """Return the empty span at the root of a model's tree."""
    return Candidate(nodes={sequence: sequence.root})


def add_word(
    span: Candidate, rules: WordRules, first: tuple[int, ...] = (), enough: Enough = never
) -> Program[Candidate]:
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
    nodes = {node.sequence: node}
    return Candidate(span.text + text, ends=not tokens, words=span.words + 1, nodes=nodes)


def greedy_words(sequence: TokenSequence, rules: WordRules, words: int) -> Program[Candidate]:
    """Write up to `words` greedy words; END or a stop string in the text is the last of them."""
    span = unwritten(sequence)
    while span.words < words:
        span = yield from add_word(span, rules)
        if span.ends or rules.stops.within(span.text):
            break
    return span
