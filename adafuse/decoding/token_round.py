"""One model's ids for a text that is written byte by byte or token by token."""

import codecs
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adafuse.decoding.round import Example
from adafuse.engine.node import ContextFullError, NextToken, Node, Program, TokenSequence, gather
from adafuse.errors import ExampleError
from adafuse.records import Candidate, Round
from adafuse.tokenization.text import encode_bytes, first_token

if TYPE_CHECKING:
    from adafuse.models.language_model import LanguageModel

LONGEST_CHAIN = 64
"""Text without spaces is committed after this many ids, whatever could still be merged."""


class PendingText:
    """A model's view of the text so far: committed ids, then a chain in the tree for the rest.

    The rest, `pending`, begins at the last place where a word began, so it is re-encoded whenever
    it grows: its chain shares nodes with the last one, and nothing is ever rolled back. A token
    that the model would have written itself is kept as it is, so that a model alone writes its own
    greedy text; unless `keeps_own` is off, and the ids are always those of the tokenizer.
    """

    def __init__(self, sequence: TokenSequence, *, keeps_own: bool = True) -> None:
        self.sequence = sequence
        self._keeps_own = keeps_own
        self.node: Node = sequence.root
        self.pending = b""

    @property
    def generated(self) -> int:
        """How many ids the model holds for the text."""
        return self.sequence.generated + self.node.depth - self.sequence.root.depth

    def known(self) -> Program[Node]:
        """Ask for the distribution behind the text, and return its node."""
        missing = [n for n in (self.sequence.root, *self.node.path()) if n.next is None]
        if missing:
            yield missing
        return self.node

    def extend(self, surface: bytes) -> None:
        """Append bytes to the text.

        Raises:
            ContextFullError: the model has no position left.
            ValueError: the tokenizer cannot encode these bytes behind the text.
        """
        token_bytes = self.sequence.model.token_bytes
        own = self.node.next.greedy if self.node.next and self._keeps_own else None
        self.pending += surface
        if own is not None and token_bytes.of[own] == surface:
            self.node = self.node.child(own)
        else:
            self.node = self.encoded(self.pending)
        self._settle()

    def encoded(self, text: bytes) -> Node:
        """Return the last node of the ids of `text` behind the committed ids."""
        chain = self.sequence.root.chain(encode_bytes(self.sequence.model, text))
        return chain[-1] if chain else self.sequence.root

    def finish(self) -> None:
        """Commit what is pending."""
        self._commit(self.node)

    def _settle(self) -> None:
        """Commit up to the last beginning of a word at which a token begins, too."""
        path = self.node.path()
        place, border, at = 0, 0, None
        for index, node in enumerate(path):
            if _begins_word(self.pending, place) or len(path) - index == LONGEST_CHAIN:
                border, at = place, node.parent
            place += len(self.sequence.model.token_bytes.of[node.token] or b"")
        if at is None or at is self.sequence.root:
            return
        rest = tuple(node.token for node in path if node.depth > at.depth)
        self._commit(at)
        self.pending = self.pending[border:]
        self.node = self.sequence.root.chain(rest)[-1]

    def _commit(self, node: Node) -> None:
        if node is not self.sequence.root:
            self.sequence.engine.commit(node)


def _begins_word(text: bytes, place: int) -> bool:
    """Whether whitespace begins at `place`, behind something else."""
    return (
        0 < place < len(text)
        and text[place : place + 1].isspace()
        and not text[place - 1 : place].isspace()
    )


TRACED = 5
"""A trace keeps this many of the best entries of each round."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the vocabularies' union: some bytes, or END (`ends`, no bytes).

    `nll[k]` is -log p_k(entry) under model k as the method normalises it, `fused` the negative
    logarithm of what the method maximises; `proposers` are the models among whose likeliest tokens
    it is. A model that was not asked has the NLL nan.
    """

    surface: bytes
    ends: bool
    proposers: tuple[int, ...]
    nll: tuple[float, ...]
    fused: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The entries of a round, the chosen one first, and each model's margin where it was read."""

    entries: Sequence[Entry]
    margins: tuple[tuple[float, ...], ...]


def entry_of(key: bytes, proposers: Iterable[int], p: Iterable[float], fused: float) -> Entry:
    """Return an entry by its key (nothing for END), from probabilities."""
    nll = tuple(negative_log(each) for each in p)
    return Entry(key, not key, tuple(proposers), nll, negative_log(fused))


Choose = Callable[[Sequence[PendingText]], Program[Choice]]


def fuse_tokens(example: Example, choose: Choose, *, keeps_own: bool = True) -> Program[None]:
    """Choose an entry and write its bytes in every model until the example stops.

    A character whose bytes come one by one is added to the text when it is whole.

    Args:
        example: what is decoded.
        choose: returns the entries of a round.
        keeps_own: models keep the ids that they would have written themselves; see `PendingText`.
    """
    texts = [PendingText(sequence, keeps_own=keeps_own) for sequence in example.sequences]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        while example.reason is None:
            choice = yield from choose(texts)
            if not choice.entries or not math.isfinite(choice.entries[0].fused):
                raise ExampleError(_no_finite(texts))
            chosen = choice.entries[0]
            assert chosen.ends or chosen.surface, "an entry without bytes would be chosen forever"
            if not chosen.ends:
                for pending in texts:
                    pending.extend(chosen.surface)
            text = decoder.decode(chosen.surface, final=chosen.ends)
            example.rounds.append(_round(choice, _begun_words(example.text, text)))
            longest = max(pending.generated for pending in texts)
            example.text += text
            example.check_stop(ended=chosen.ends, tokens=longest)
    except ContextFullError:
        example.reason = "length"
    for pending in texts:
        pending.finish()


def distributions(texts: Iterable[PendingText]) -> Program[list[NextToken]]:
    """Return each model's distribution behind the text; the models are asked side by side."""
    nodes = yield from gather(pending.known() for pending in texts)
    known = [node.next for node in nodes if node.next is not None]
    assert len(known) == len(nodes)
    return known


def _no_finite(texts: Iterable[PendingText]) -> str:
    ends = [(pending.sequence.model.name, pending.node.next) for pending in texts]
    odd = [name for name, after in ends if after and not math.isfinite(after.top_logprobs[0])]
    return f"no next token has a probability under {' and '.join(odd) or 'all models together'}"


def _round(choice: Choice, words: int) -> Round:
    candidates = [
        Candidate(e.surface.decode(errors="replace"), e.ends, e.proposers, e.nll, e.fused)
        for e in choice.entries[:TRACED]
    ]
    return Round(tuple(candidates), 0, words, choice.margins)


def negative_log(p: float) -> float:
    """Return -log p, infinite for 0."""
    return math.inf if p == 0 else -math.log(p)


def _begun_words(before: str, text: str) -> int:
    """Count the words that begin in `text` when it follows `before`."""
    inside = bool(before) and not before[-1].isspace()
    continued = inside and bool(text) and not text[0].isspace()
    return len(text.split()) - continued


def main_entry(
    token: int,
    fused: float,
    main: int,
    models: Sequence["LanguageModel"],
    known: Sequence[NextToken],
) -> Entry:
    """Return the entry of a token of model `main`.

    NLL of the main model is that of the token; of another model that of its own token with the
    same bytes, else of the first token that spells them, and for END of all its special tokens
    together. Proposers are the main model and those whose likeliest token it is.
    """
    ends = token in models[main].stop_ids
    surface = b"" if ends else models[main].token_bytes.of[token] or b""
    nll, proposers = [], []
    for number, (model, next_token) in enumerate(zip(models, known, strict=True)):
        ids = [token] if number == main else _counterparts(model, surface, ends)
        nll.append(-float(next_token.logprobs[ids].logsumexp(dim=-1)))
        if number == main or next_token.greedy in ids:
            proposers.append(number)
    return Entry(surface, ends, tuple(proposers), tuple(nll), fused)


def _counterparts(model: "LanguageModel", surface: bytes, ends: bool) -> list[int]:
    if ends:
        return sorted(model.stop_ids)
    token = first_token(model, surface)
    return [] if token is None else [token]
