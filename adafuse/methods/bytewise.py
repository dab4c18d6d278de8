"""`bytewise`: averaging next-byte probabilities (arXiv 2410.09303)."""

import math
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from adafuse.decoding.fusion import WeightingOptions
from adafuse.decoding.method import Method, Models
from adafuse.decoding.round import Example
from adafuse.decoding.token_round import (
    TRACED,
    Choice,
    Entry,
    MeanOptions,
    PendingText,
    Probabilities,
    average,
    fuse_tokens,
)
from adafuse.engine.node import Node, Program, evaluated, gather
from adafuse.tokenization.token_bytes import TokenBytes

END = 256
"""The symbol after the 256 bytes."""


class SortedVocabulary:
    """The ids of a vocabulary, but for those in `without`, in the order of their bytes.

    Those that begin alike are one slice.
    """

    def __init__(self, token_bytes: TokenBytes, without: Collection[int] = ()) -> None:
        pairs = [(surface, index) for index, surface in enumerate(token_bytes.of) if surface]
        pairs = sorted(pair for pair in pairs if pair[1] not in without)
        self.order: NDArray[np.int64] = np.array([index for _, index in pairs], np.int64)
        self._sorted = [surface for surface, _ in pairs]
        self._longer = lru_cache(1 << 16)(self._find_longer)

    def next_bytes(self, prefix: bytes, values: Probabilities) -> Probabilities:
        """Add up the values of all tokens that begin with `prefix`, by the byte after it: [256]."""
        tokens, following = self._longer(prefix)
        return np.bincount(following, values[tokens], minlength=END).astype(np.float64)

    def _find_longer(self, prefix: bytes) -> tuple[slice, NDArray[np.int64]]:
        size = len(prefix)
        first = bisect_right(self._sorted, prefix)
        last = bisect_right(self._sorted, prefix, first, key=lambda surface: surface[:size])
        following = [surface[size] for surface in self._sorted[first:last]]
        return slice(first, last), np.array(following, np.int64)


@dataclass(frozen=True, slots=True)
class Cover:
    """T_p, the ids of the first `start` = p pending bytes, with `logprob` = log P(T_p).

    `tokens` holds P(t | T_p) in sorted order, `end` that of all special tokens together.
    """

    start: int
    logprob: float
    tokens: Probabilities
    end: float


class CoverEncodings:
    """The covers of one model's pending bytes x.

    A cover is T_p followed by a token t whose bytes begin with x[p:] and go on: P(T_p) P(t | T_p)
    goes to the byte after x. A T_p whose probability is below `prune` of that of x is dropped, and
    the model is never asked what follows it.

    This is the "fast mode" of the authors' code: tokens that the tokenizer would not have written
    after T_p are not masked. When `PendingText` commits a word, covers start anew: those with a
    token across its end are dropped.
    """

    def __init__(self, pending: PendingText, vocabulary: SortedVocabulary, prune: float) -> None:
        self._text = pending
        self._vocabulary = vocabulary
        self._prune = prune
        self._root: Node | None = None
        self._size = 0
        self._covers: dict[Node, Cover] = {}

    def probabilities(self) -> Program[Probabilities]:
        """Return the probabilities of the 256 bytes and END after the pending bytes: [257].

        If the model gives the pending bytes no probability, they are those after its ids for them.
        """
        root = self._text.sequence.root
        if root is not self._root:
            self._root, self._size, self._covers = root, 0, {}
            yield from self._add(root, 0.0)
        while self._size < len(self._text.pending):
            self._size += 1
            yield from self._reach()
        masses = self._masses()
        total = masses.sum()
        if not total > 0:
            name = self._text.sequence.model.name
            raise ValueError(f"{name} gives no byte a probability after the text")
        return np.asarray(masses / total)

    def _reach(self) -> Program[None]:
        """Take in one more byte: T_p of all of x becomes a cover if it is likely enough."""
        node = self._text.encoded(self._text.pending[: self._size])
        across = float(self._masses().sum())
        logprob = yield from self._logprob(node, self._prune * across)
        mass = math.exp(logprob)
        if mass + across == 0:
            self._covers, logprob, mass = {}, 0.0, 1.0
        if mass > 0 and mass >= self._prune * (mass + across):
            yield from self._add(node, logprob)

    def _logprob(self, node: Node, least: float) -> Program[float]:
        """Return log P of the ids up to a node, minus infinity if it is below `least`."""
        if node in self._covers:
            return self._covers[node].logprob
        if node.parent is None:
            return -math.inf
        before = yield from self._logprob(node.parent, least)
        if math.exp(before) <= least:
            return -math.inf
        yield from evaluated([node.parent])
        assert node.parent.next is not None
        return before + float(node.parent.next.logprobs[node.token])

    def _add(self, node: Node, logprob: float) -> Program[None]:
        yield from evaluated([self._text.sequence.root, *node.path()])
        assert node.next is not None
        vector = node.next.logprobs
        logprobs = vector.cpu().numpy()[self._vocabulary.order]
        end = math.exp(vector[sorted(node.sequence.model.end_ids)].logsumexp(dim=-1))
        self._covers[node] = Cover(self._size, logprob, np.exp(logprobs, dtype=np.float64), end)

    def _masses(self) -> Probabilities:
        """Return P(x and then each symbol)."""
        masses = np.zeros(END + 1)
        for cover in self._covers.values():
            p = math.exp(cover.logprob)
            rest = self._text.pending[cover.start : self._size]
            masses[:END] += p * self._vocabulary.next_bytes(rest, cover.tokens)
            if cover.start == self._size:
                masses[END] += p * cover.end
        return masses


class BytewiseOptions(WeightingOptions, MeanOptions):
    """Which mean is taken, and which tokenizations count."""

    prune: Annotated[float, Field(ge=0, lt=1)] = 1e-3
    """drop tokenizations whose share of the text's probability is below this; larger values save
    forward passes"""


class Bytewise(Method[BytewiseOptions]):
    """Writes the likeliest byte under the weighted mean of the models' next-byte probabilities.

    `CoverEncodings` says how these come from tokens, and where they are not quite exact; no token
    crosses the end of the prompt, so let it end where a token does. A round of
    the trace is one byte; NLLs are those of the byte, or of END, which is any special token. The
    paper samples; here the likeliest byte is taken, ties to the lower byte.
    """

    name = "bytewise"
    Options = BytewiseOptions

    @property
    def reads_distributions(self) -> bool:
        return True

    def prepare(self, models: Models) -> None:
        self._vocabularies = [SortedVocabulary(m.token_bytes, without=m.end_ids) for m in models]

    def decode(self, example: Example) -> Program[None]:
        covers: list[CoverEncodings] = []

        def choose(texts: Sequence[PendingText]) -> Program[Choice]:
            if not covers:
                pairs = zip(texts, self._vocabularies, strict=True)
                covers.extend(CoverEncodings(*pair, self.options.prune) for pair in pairs)
            p = yield from gather(own.probabilities() for own in covers)
            mean = average(np.array(p), np.array(example.weights), self.options.mean)
            best = np.argsort(-mean, kind="stable")[:TRACED].tolist()
            entries = [_entry(symbol, mean, p) for symbol in best if mean[symbol] > 0]
            return Choice(entries, ((),) * len(texts))

        return fuse_tokens(example, choose, keeps_own=False)


def _entry(symbol: int, mean: Probabilities, p: Sequence[Probabilities]) -> Entry:
    surface = b"" if symbol == END else bytes([symbol])
    proposers = (number for number, own in enumerate(p) if own.argmax() == symbol)
    return Entry.of(surface, proposers, [own[symbol] for own in p], mean[symbol])
