"""Sampling texts of one model, with random numbers that nothing but seed and prompt decides."""

import math
from collections.abc import Callable, Iterable, Sequence
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

PickAt = Callable[[NextToken, int], int]
"""Picks the id of the token at a position, counted from 0."""
MOST_DECODED = 16
"""The text of so many ids is decoded again with each further one, at most."""


def nucleus_weights(following: NextToken, temperature: float, top_p: float) -> "torch.Tensor":
    """Return the probability of each id at a temperature, shape [vocabulary].

    It is 0 of ids that are not among the likeliest ones that together have the probability `top_p`.
    """
    logprobs = following.logprobs.double()
    probabilities = ((logprobs - logprobs.max()) / temperature).softmax(dim=-1)
    likeliest = probabilities.sort(descending=True).values
    above = likeliest.cumsum(dim=0) - likeliest
    smallest = likeliest[max(1, int((above < top_p).sum())) - 1]
    return probabilities * (probabilities >= smallest)


def gumbel_noise(key: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a number per id that `key`, `position` and the id alone decide (Philox 4x64).

    It follows the Gumbel distribution: log p plus it is largest for each id with probability p.
    Unlike where ids share one uniform number, rounding of p changes which that is only where two
    are about equal.
    """
    bits = np.random.Philox(key=key, counter=position << 64).random_raw(int(ids.max()) + 1)[ids]
    uniform = ((bits >> np.uint64(11)) + 0.5) * 2.0**-53
    return np.asarray(-np.log(-np.log(uniform)))


def sampler(temperature: float, top_p: float, *names: object) -> PickAt:
    """Return what draws from the nucleus; what is named decides the random numbers."""
    digest = blake2b(repr(names).encode(), digest_size=16).digest()
    key = int.from_bytes(digest, "little")

    def pick(following: NextToken, position: int) -> int:
        weights = nucleus_weights(following, temperature, top_p).cpu().numpy()
        ids = np.flatnonzero(weights)
        if len(ids) < 2:
            return int(ids[0]) if len(ids) else following.greedy
        noisy = np.log(weights[ids]) + gumbel_noise(key, position, ids)
        return int(ids[noisy.argmax()])

    return pick


@dataclass(eq=False)
class Sample:
    """A text while it is drawn after `node`, and the reason why it ended, None before.

    Its last `ids` add to the text before them what the anchor says.
    """

    example: Example
    node: Node
    pick: PickAt
    anchor: Anchor
    text: str = ""
    tokens: int = 0
    reason: StopReason | None = None
    before: str = ""
    ids: list[int] = field(default_factory=list)

    def step(self) -> None:
        """Draw a token after the last one, which is evaluated."""
        following, model = self.node.next, self.node.sequence.model
        assert following is not None
        token = self.pick(following, self.tokens)
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
    example: Example, sequence: TokenSequence, picks: Iterable[PickAt]
) -> Program[list[Sample]]:
    """Draw a text with each of `picks`, all side by side: a forward runs the next token of each.

    Nothing is committed. They are in step, so that no text comes to a node that another one left,
    whose row of log-probabilities is released.
    """
    anchor = sequence.model.anchor(sequence.root.last_ids(LONGEST_CONTEXT))
    samples = [Sample(example, sequence.root, pick, anchor) for pick in picks]
    live: Sequence[Sample] = samples
    while live:
        nodes = dict.fromkeys(sample.node for sample in live)
        yield from evaluated(nodes)
        for sample in live:
            sample.step()
        for node in nodes:
            node.release()
        live = [sample for sample in live if sample.reason is None]
    return samples
