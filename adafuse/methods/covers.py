"""Exact probabilities of the next byte under a model that writes tokens (arXiv 2410.09303)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adafuse.engine.node import Node
from adafuse.engine.program import Program, evaluated
from adafuse.methods.strand import Strand
from adafuse.text.prefixes import SortedVocabulary

END = 256
"""The symbol behind the 256 bytes."""

Probabilities = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cover:
    """T_p, the ids of the first `start` = p pending bytes, and what follows them.

    `logprob` is log P(T_p), `tokens` holds P(t | T_p) in the order of the sorted vocabulary, `end`
    the same of all special tokens together.
    """

    start: int
    logprob: float
    tokens: Probabilities
    end: float


class Covers:
    """The covers of one model's pending bytes x.

    A cover is T_p followed by a token that reaches behind x: its surface begins with x[p:] and is
    longer. P(T_p) P(t | T_p) of it goes to the byte behind x. A T_p whose probability is below
    `prune` of that of x is dropped, and the model is never asked what follows it.

    This is the "fast mode" of the authors' code: tokens that the tokenizer would not have written
    behind T_p are not masked. The ids of an unfinished character are those of its bytes. Behind
    the last beginning of a word that `Strand` commits, covers start anew: those with a token across
    it are dropped.
    """

    def __init__(self, strand: Strand, vocabulary: SortedVocabulary, prune: float) -> None:
        self._strand = strand
        self._vocabulary = vocabulary
        self._prune = prune
        self._root: Node | None = None
        self._size = 0
        self._covers: dict[Node, Cover] = {}

    def probabilities(self) -> Program[Probabilities]:
        """Return the probabilities of the 256 bytes and END behind the pending bytes: [257].

        A model that holds them to be impossible is asked what follows its ids for them.

        Raises:
            ValueError: the model gives nothing a probability.
        """
        root = self._strand.sequence.root
        if root is not self._root:
            self._root, self._size, self._covers = root, 0, {}
            yield from self._add(root, 0.0)
        while self._size < len(self._strand.pending):
            self._size += 1
            yield from self._reach()
        masses = self._masses()
        total = masses.sum()
        if not total > 0:
            name = self._strand.sequence.model.name
            raise ValueError(f"{name} gives no byte a probability behind the text")
        return np.asarray(masses / total)

    def _reach(self) -> Program[None]:
        """Take in one more byte: T_p of all of x becomes a cover if it is likely enough."""
        node = self._strand.encoded(self._strand.pending[: self._size])
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
        return before + float(node.parent.next.vector[node.token])

    def _add(self, node: Node, logprob: float) -> Program[None]:
        yield from evaluated([self._strand.sequence.root, *node.path()])
        assert node.next is not None
        vector = node.next.vector
        logprobs = vector.cpu().numpy()[self._vocabulary.order]
        end = math.exp(vector[sorted(node.sequence.model.stop_ids)].logsumexp(dim=-1))
        self._covers[node] = Cover(self._size, logprob, np.exp(logprobs, dtype=np.float64), end)

    def _masses(self) -> Probabilities:
        """Return P(x and then each symbol)."""
        masses = np.zeros(END + 1)
        for cover in self._covers.values():
            p = math.exp(cover.logprob)
            following = self._vocabulary.following(self._strand.pending[cover.start : self._size])
            masses[following.bytes] += p * following.sums(cover.tokens)
            if cover.start == self._size:
                masses[END] += p * cover.end
        return masses
