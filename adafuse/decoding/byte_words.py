"""Next-byte probabilities (arXiv 2410.09303), and words that all models write byte by byte."""

import math
import re
from bisect import bisect_right
from codecs import getincrementaldecoder
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from adafuse.decoding.candidates import Pool, Span
from adafuse.decoding.fusion import PoolFusion
from adafuse.decoding.round import Example, choose
from adafuse.decoding.token_round import PendingText, Probabilities, average
from adafuse.engine.node import ContextFullError, Node, Program, evaluated, gather
from adafuse.errors import ExampleError
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

    def __init__(
        self,
        pending: PendingText,
        vocabulary: SortedVocabulary,
        prune: float,
        ahead: Iterable[Node] = (),
    ) -> None:
        self._text = pending
        self._vocabulary = vocabulary
        self._prune = prune
        self._root: Node | None = None
        self._size = 0
        self._covers: dict[Node, Cover] = {}
        self._ahead = [*ahead]

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
            raise ExampleError(f"{name} gives no byte a probability after the text")
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
        yield from self._evaluated([node.parent])
        assert node.parent.next is not None
        return before + float(node.parent.next.logprobs[node.token])

    def _add(self, node: Node, logprob: float) -> Program[None]:
        yield from self._evaluated([self._text.sequence.root, *node.path()])
        assert node.next is not None
        vector = node.next.logprobs
        logprobs = vector.cpu().numpy()[self._vocabulary.order]
        end = math.exp(vector[sorted(node.sequence.model.end_ids)].logsumexp(dim=-1))
        self._covers[node] = Cover(self._size, logprob, np.exp(logprobs, dtype=np.float64), end)

    def _evaluated(self, nodes: Sequence[Node]) -> Program[None]:
        """Evaluate some nodes and, the first time that one is missing, those that may follow."""
        if self._ahead and any(node.missing or node.released for node in nodes):
            nodes, self._ahead = [*nodes, *self._ahead], []
        yield from evaluated(dict.fromkeys(nodes))

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


_FIRST_WORD = re.compile(r"\s*\S+")
PRUNE = 1e-3
"""A tokenization with less than this share of a text's probability is left out, by default."""


@dataclass(eq=False)
class ByteWords:
    """What is done in the rounds of one example that have more than one candidate.

    The next word is written byte by byte: each byte, or END, is the likeliest under the weighted
    mean of the models' probabilities. That word is committed, or where it `joins` becomes one more
    candidate (eq. 4-6 choose). With a `gap`, this is done only where the best two candidates lie
    within so many nats of F(s). A word has at most `max_tokens` tokens in any model. Candidates
    are scored before it is written only if that is needed: for a `gap`, or for the weights of a
    gate (`gated`), which gives the word no F(s).

    `_decided` holds the symbols at which the last word ended, by the text before them: the next
    word begins with them, unless the models agree on another one.
    """

    vocabularies: Sequence[SortedVocabulary]
    max_tokens: int
    joins: bool = False
    gap: float | None = None
    gated: bool = False
    _decided: dict[str, list[int]] = field(default_factory=dict, init=False)

    def settle(self, example: Example, pool: Pool, fuse: PoolFusion) -> Program[Span]:
        """Return what is committed, and record the round."""
        weights: Sequence[float] = pool.weights(example.weights)
        if self.gated or self.gap is not None:
            yield from pool.score()
            ranked, weights = example.fused(pool.candidates, pool, fuse)
            difference = ranked[1].fused - ranked[0].fused if len(ranked) > 1 else math.inf
            if self.gap is not None and difference > self.gap:
                return example.select(pool, fuse)
        word = yield from self._write(example, pool, weights)
        yield from pool.read(word)
        if self.joins:
            pool.join(word)
            return (yield from choose(example, pool, fuse))
        if not self.gated:
            example.fused([word], pool, fuse)
        pool.candidates.insert(0, word)
        return example.take(pool, word, weights)

    def _write(self, example: Example, pool: Pool, weights: Sequence[float]) -> Program[Span]:
        """Write a word: up to white space, a stop string, END or the limit."""
        texts = {k: PendingText(s, keeps_own=False) for k, s in pool.active.items()}
        for k, text in texts.items():
            text.pending = pool.first_space(k).encode()
        voters = [k for k in texts if weights[k] > 0]
        covers = [
            CoverEncodings(texts[k], self.vocabularies[k], PRUNE, _beginnings(texts[k], pool))
            for k in voters
        ]
        shares = np.array([weights[k] for k in voters])
        rules, decoder = example.rules(self.max_tokens), getincrementaldecoder("utf-8")("replace")
        decided, written, rest = self._decided.pop(example.text, []), "", b""
        while True:
            symbol = decided.pop(0) if decided else (yield from _likeliest(covers, shares))
            if symbol == END:
                break
            for text in texts.values():
                text.pending += bytes([symbol])
            addition = decoder.decode(bytes([symbol]))
            rest, _ = decoder.getstate()
            before = written + addition[:-1]
            if addition[-1:].isspace() and before.strip():
                written, rest = before, addition[-1].encode()
                break
            written += addition
            if addition and rules.complete(
                written, max(len(text.encoded(text.pending).path()) for text in texts.values())
            ):
                break
        first = pool.first_space(pool.candidates[0].proposers[0]) if written else ""
        self._decided = {example.text + first + written: [*rest, *[END] * (symbol == END)]}
        whole = {text: text.pending.removesuffix(rest) for text in texts.values()}
        nodes = {text.sequence: text.encoded(word) for text, word in whole.items()}
        return Span(first + written, ends=not written, words=1, nodes=nodes)


def _likeliest(covers: Sequence[CoverEncodings], weights: Probabilities) -> Program[int]:
    """Return the likeliest symbol under the weighted mean, of equal ones the lowest."""
    p = yield from gather(own.probabilities() for own in covers)
    return int(average(np.array(p), weights, "arithmetic").argmax())


def _beginnings(text: PendingText, pool: Pool) -> dict[Node, None]:
    """Return the nodes of all prefixes of the proposed first words, one of which is mostly next."""
    found = dict[Node, None]()
    for candidate in pool.candidates:
        word = _FIRST_WORD.match(pool.key(candidate)[0])
        surface = b"" if word is None else word[0].encode()
        for size in range(1, len(surface) + 1):
            with suppress(ContextFullError, ValueError):  # the model may be unable to write it
                node = text.encoded(text.pending + surface[:size])
                found |= dict.fromkeys([*node.above(), node])
    return found
