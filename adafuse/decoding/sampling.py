"""Sampling texts of one model, with random numbers that nothing but seed and prompt decides."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adafuse.decoding.candidates import Span
from adafuse.decoding.round import Example
from adafuse.engine.node import ContextFullError, NextToken, Node, Program, TokenSequence, evaluated
from adafuse.records.result import StopReason
from adafuse.tokenization.text import LONGEST_CONTEXT, UNFINISHED, Anchor, whole_characters

if TYPE_CHECKING:
    import torch

Weighted = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Ids that may be drawn, and the probability of each, up to a factor."""
MOST_DECODED = 16
"""The text of so many ids is decoded again with each further one, at most."""


def nucleus_weights(following: NextToken, temperature: float, top_p: float) -> "torch.Tensor":
    """Return the probability of each id at a temperature, shape [vocabulary].

    It is 0 of ids that are not among the likeliest ones that together have the probability `top_p`.
    """
    logprobs = following.logprobs.double()
    probabilities = ((logprobs - logprobs.max()) / temperature).softmax(dim=-1)
    if top_p == 1:
        return probabilities
    likeliest = probabilities.sort(descending=True).values
    above = likeliest.cumsum(dim=0) - likeliest
    smallest = likeliest[max(1, int((above < top_p).sum())) - 1]
    return probabilities * (probabilities >= smallest)


def key_of(*names: object) -> int:
    """Return a number of 128 bits that what is named decides."""
    return int.from_bytes(blake2b(repr(names).encode(), digest_size=16).digest(), "little")


def waiting_times(key: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a number per id that `key`, `position` and the id alone decide (Philox 4x64).

    It follows the exponential distribution, so that the smallest of these numbers over p is that of
    each id with probability p. Unlike where ids share one uniform number, rounding of p changes
    which that is only where two are about equal.
    """
    bits = np.random.Philox(key=key, counter=position << 64).random_raw(int(ids.max()) + 1)[ids]
    return np.asarray(-np.log(((bits >> np.uint64(11)) + 0.5) * 2.0**-53))


def drawn(weighted: Weighted, key: int, position: int) -> int:
    """Return the id that is drawn at a position."""
    ids, weights = weighted
    if len(ids) == 1:
        return int(ids[0])
    return int(ids[(waiting_times(key, position, ids) / weights).argmin()])


@dataclass(eq=False)
class Sample:
    """A text while it is drawn after `node`, and the reason why it ended, None before.

    Its last `ids` add to the text before them what the anchor says.
    """

    example: Example
    node: Node
    key: int
    anchor: Anchor
    text: str = ""
    tokens: int = 0
    reason: StopReason | None = None
    before: str = ""
    ids: list[int] = field(default_factory=list)

    def step(self, weighted: Weighted) -> None:
        """Draw a token after the last one, which is evaluated."""
        following, model = self.node.next, self.node.sequence.model
        assert following is not None
        if not len(weighted[0]):  # no probability is a number
            self.reason = "error"
            return
        token = drawn(weighted, self.key, self.tokens)
        ended = token in model.end_ids
        logprob = following.log_end if ended else float(following.logprobs[token])
        if not math.isfinite(logprob):
            self.reason = "error"
            return
        if not ended:
            try:
                self.node = self.node.child(token)
            except ContextFullError:
                self.reason = "length"
                return
            self.node.logprob = logprob if self.node.logprob is None else self.node.logprob
            self._append(token)
        self.reason = self.example.limits.stop_reason(
            ended=ended,
            stopped=self.example.stops.within(self.text),
            tokens=self.tokens,
            rounds=0,
        )

    def _append(self, token: int) -> None:
        if len(self.ids) >= MOST_DECODED and not self.text.endswith(UNFINISHED):
            *above, _ = self.node.last_ids(LONGEST_CONTEXT + 1)
            self.anchor = self.node.sequence.model.anchor(above)
            self.before, self.ids = self.text, []
        self.ids.append(token)
        self.tokens += 1
        self.text = self.before + self.anchor.added(self.ids)

    def span(self) -> Span:
        """Return the whole text as a candidate of the only model, scored without its thoughts."""
        sequence, text = self.node.sequence, self.text
        if self.reason in ("length", "eos"):
            ids = [*sequence.ids, *(node.token for node in self.node.path())]
            text = whole_characters(sequence.model, text, ids)
        marks, ends = self.example.thoughts, self.reason == "eos"
        thoughts = marks.length(text) if marks else 0
        text = self.example.stops_after.through(text)
        span = Span(text, ends, thoughts=thoughts, nodes={sequence: self.node}, margins={0: ()})
        span.score([sequence])
        return span


def draw(
    example: Example,
    sequence: TokenSequence,
    keys: Iterable[int],
    temperature: float,
    top_p: float,
) -> Program[list[Sample]]:
    """Draw a text with each of `keys`, all side by side: a forward runs the next token of each.

    Nothing is committed. They are in step, so that no text comes to a node that another one left,
    whose row of log-probabilities is released.
    """
    anchor = sequence.model.anchor(sequence.root.last_ids(LONGEST_CONTEXT))
    samples = [Sample(example, sequence.root, key, anchor) for key in keys]
    live: Sequence[Sample] = samples
    while live:
        nodes = dict.fromkeys(sample.node for sample in live)
        yield from evaluated(nodes)
        weighted = {node: _weighted(node, temperature, top_p) for node in nodes}
        for sample in live:
            sample.step(weighted[sample.node])
        for node in nodes:
            node.release()
        live = [sample for sample in live if sample.reason is None]
    return samples


def _weighted(node: Node, temperature: float, top_p: float) -> Weighted:
    assert node.next is not None
    weights = nucleus_weights(node.next, temperature, top_p).cpu().numpy()
    ids = np.flatnonzero(weights > 0)
    return ids, weights[ids]
