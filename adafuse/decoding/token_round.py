"""Rounds of methods that fuse next-token distributions: one entry of their union a round."""

import codecs
import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adafuse.decoding.round import Example
from adafuse.engine.node import ContextFullError, NextToken, Node, Program, TokenSequence, evaluated
from adafuse.errors import ExampleError
from adafuse.options import MethodOptions
from adafuse.records.result import LARGEST_P, Candidate, Round
from adafuse.tokenization.text import encode_bytes

Probabilities = NDArray[np.float64]

LONGEST_CHAIN = 64
"""Text without spaces is committed after this many ids, whatever could still be merged."""


class PendingText:
    """A model's view of the text so far: committed ids, then a chain in the tree for the rest.

    The rest, `pending`, begins where the last word began, and is encoded again whenever it grows:
    its chain shares nodes with the last one, and nothing is ever rolled back. With `keeps_own`, a
    token that the model would have written itself is kept: a single model writes its greedy text.
    """

    def __init__(self, sequence: TokenSequence, *, keeps_own: bool = True) -> None:
        self.sequence = sequence
        self._keeps_own = keeps_own
        self.node: Node = sequence.root
        self.pending = b""

    @property
    def generated(self) -> int:
        return self.sequence.generated + self.node.depth - self.sequence.root.depth

    def next_token(self) -> Program[NextToken]:
        """Return the model's distribution after the text."""
        yield from evaluated([self.sequence.root, *self.node.path()])
        assert self.node.next is not None
        return self.node.next

    def logprob(self, surface: bytes) -> Program[float]:
        """Return log p, in nats, of some bytes after the text, in the ids that would write them.

        No bytes are END. Where bytes merge with those before them into other ids, it is the ratio
        of what the whole text is to the model to what it was without them, or 0 if that is above 1.

        Raises:
            ContextFullError: the model has no position left for them.
        """
        after = yield from self.next_token()
        if not surface:
            return after.log_end
        paths = self._extended(surface).path(), self.node.path()
        yield from evaluated([node for path in paths for node in path])
        longer, shorter = (math.fsum(node.logprob or 0 for node in path) for path in paths)
        return min(0.0, longer - shorter)

    def extend(self, surface: bytes) -> None:
        self.node = self._extended(surface)
        self.pending += surface
        self._settle()
        if self._keeps_own:  # else the model would not go on from here
            self.sequence.tip, self.sequence.pending = self.node, self.pending

    def _extended(self, surface: bytes) -> Node:
        """Return the node of the text with some bytes after it."""
        own = self.node.next.greedy if self.node.next and self._keeps_own else None
        if own is not None and self.sequence.model.token_bytes.of[own] == surface:
            return self.node.child(own)
        return self.encoded(self.pending + surface)

    def splits_before(self, surface: bytes) -> bool:
        """Whether the model begins a token where `surface` would follow the text."""
        position = 0
        for token in encode_bytes(self.sequence.model, self.pending + surface):
            if position >= len(self.pending):
                break
            position += len(self.sequence.model.token_bytes.of[token] or b"")
        return position == len(self.pending)

    def encoded(self, text: bytes) -> Node:
        """Return the last node of the ids of `text` after the committed ids."""
        chain = self.sequence.root.chain(encode_bytes(self.sequence.model, text))
        return chain[-1] if chain else self.sequence.root

    def _settle(self) -> None:
        """Commit up to the last beginning of a word at which a token begins, too."""
        path = self.node.path()
        position, border, at = 0, 0, None
        for index, node in enumerate(path):
            before, here = self.pending[position - 1 : position], self.pending[position:][:1]
            begins_word = here.isspace() and before and not before.isspace()
            if begins_word or len(path) - index == LONGEST_CHAIN:
                border, at = position, node.parent
            position += len(self.sequence.model.token_bytes.of[node.token] or b"")
        if at is None or at is self.sequence.root:
            return
        rest = tuple(node.token for node in path if node.depth > at.depth)
        self.sequence.engine.commit(at)
        self.pending = self.pending[border:]
        self.node = self.sequence.root.chain(rest)[-1]


TRACED = 5
"""A trace keeps this many of the best entries of each round."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the vocabularies' union: some bytes, or none for END.

    `nll[k]` is -log p_k as the method normalises it, nan for a model that was not asked, `fused`
    the negative logarithm of what the method maximises. It is among the likeliest of `proposers`.
    """

    surface: bytes
    proposers: tuple[int, ...]
    nll: tuple[float, ...]
    fused: float

    @classmethod
    def of(
        cls, surface: bytes, proposers: Iterable[int], p: Iterable[float], fused: float
    ) -> "Entry":
        if not isinstance(surface, bytes):
            raise TypeError(f"the surface of an Entry is {surface!r}; give bytes")
        nll = tuple(map(_negative_log, p))
        return cls(surface, tuple(proposers), nll, _negative_log(fused))

    def record(self) -> Candidate:
        text = self.surface.decode(errors="replace")
        return Candidate(text, not self.surface, self.proposers, self.nll, self.fused)


def _negative_log(p: float) -> float:
    if p < 0 or p > LARGEST_P:
        raise ValueError(f"an Entry has the probability {p}; give one from 0 to 1")
    if p == 0:
        return math.inf
    return 0.0 if p >= 1 else -math.log(p)


class Choice(NamedTuple):
    """The entries of a round, the chosen one first, and each model's margin if it was read.

    `weights` are the w_k of this round where they are not those of the example.
    """

    entries: Sequence[Entry]
    margins: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...] = ()


Choose = Callable[[Sequence[PendingText]], Program[Choice]]
Mean = Literal["arithmetic", "geometric"]


class MeanOptions(MethodOptions):
    """What methods share that average probabilities."""

    mean: Mean = "arithmetic"
    """mean of the models' probabilities; the geometric mean is low if any of them is low; change it
    when the text should be likely under every model"""


def average(rows: Probabilities, weights: Probabilities, mean: Mean) -> Probabilities:
    """Return the mean of probabilities of shape [models, entries], shape [entries]."""
    rows, weights = rows[weights > 0], weights[weights > 0]
    if mean == "arithmetic":
        return np.asarray(np.average(rows, axis=0, weights=weights))
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(np.average(np.log(rows), axis=0, weights=weights)))


def fuse_tokens(example: Example, choose: Choose, *, keeps_own: bool = True) -> Program[None]:
    """Choose an entry and write its bytes in every model until the example stops.

    A character whose bytes come one by one is added to the text when it is whole.
    """
    texts = [PendingText(sequence, keeps_own=keeps_own) for sequence in example.sequences]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        while example.reason is None:
            own = choose(texts)
            if not isinstance(own, Generator):
                raise TypeError(f"choose returned {own!r:.60}; make it a generator, with yield")
            choice = yield from own
            if example.reason is not None:  # `choose` ended the text
                break
            if not isinstance(choice, Choice):
                raise TypeError(f"choose returned {choice!r:.60}; return a Choice")
            entries, margins, weights = choice
            if not isinstance(entries, Sequence) or not all(isinstance(e, Entry) for e in entries):
                raise TypeError(f"the Choice has the entries {entries!r:.60}; give a list of Entry")
            unknown = any(math.isnan(entry.fused) for entry in entries)
            if not entries or unknown or not math.isfinite(entries[0].fused):
                raise _no_finite(texts, entries)
            if (best := min(entry.fused for entry in entries)) < entries[0].fused:
                raise ValueError(
                    f"the method's Choice begins with an entry of F {entries[0].fused:g}, and has"
                    f" one of {best:g}; put the smallest first, or give only what is to be written"
                )
            surface = entries[0].surface
            if surface:
                for pending in texts:
                    pending.extend(surface)
            text = decoder.decode(surface)
            last = example.text[-1:]
            words = len((last + text).split()) - len(last.split())  # those that begin in `text`
            candidates = tuple(entry.record() for entry in entries[:TRACED])
            weights = tuple(weights) or (tuple(example.weights) if example.reweighed else ())
            example.rounds.append(Round(candidates, 0, words, margins, weights))
            example.text += text
            example.surfaces.append(surface)
            longest = max(pending.generated for pending in texts)
            example.check_stop(ended=not surface, tokens=longest)
    except ContextFullError:
        example.reason = "length"
    for pending in texts:
        pending.sequence.engine.commit(pending.node)


def _no_finite(texts: Iterable[PendingText], entries: Sequence[Entry]) -> Exception:
    ends = [(pending.sequence.model.name, pending.node.next) for pending in texts]
    odd = [name for name, after in ends if after and not math.isfinite(after.top_logprobs[0])]
    if not odd and (not entries or any(math.isnan(entry.fused) for entry in entries)):
        what = "an entry whose fused is nan; give a number" if entries else "no entry; give one"
        return ValueError(f"the method's Choice has {what}")
    if odd:
        return ExampleError(f"no next token has a probability under {' and '.join(odd)}")
    return ExampleError("the best entry of a round has the fused probability 0")
