"""`specfuse`: every model drafts, all models verify all drafts (arXiv 2412.07380, SpecEM)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from adafuse.decoding.candidates import Candidate
from adafuse.decoding.method import Method
from adafuse.decoding.round import Example, Proposal, fuse_rounds
from adafuse.decoding.words import UTF8_BYTES, StopStrings, empty_span
from adafuse.engine.node import NextToken, Program, TokenSequence, evaluated
from adafuse.options import MethodOptions, Positive
from adafuse.tokenization.text import LONGEST_CONTEXT, UNFINISHED

Pick = Callable[[NextToken], int]
Floats = NDArray[np.float64]


def nucleus(temperature: float, top_p: float, random: Random) -> Pick:
    """Return a pick from the likeliest ids that together have the probability `top_p`.

    They are lined up by id, not by probability: rounding could swap almost equal ones.
    """

    def pick(following: NextToken) -> int:
        logprobs = following.logprobs.double()
        probabilities = ((logprobs - logprobs.max()) / temperature).softmax(dim=-1)
        likeliest = probabilities.sort(descending=True).values
        above = likeliest.cumsum(dim=0) - likeliest
        smallest = likeliest[max(1, int((above < top_p).sum())) - 1]
        mass = (probabilities * (probabilities >= smallest)).cumsum(dim=0)
        return int((mass < (1 - random.random()) * mass[-1]).sum())

    return pick


def softmax(scores: Floats) -> Floats:
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def reward(votes: Floats, model: int) -> float:
    """Return the share of comparisons that a model's draft wins, ties included; at least one.

    Each other verifier j compares it with the draft of each other model i: votes[j, i].
    """
    others = [number for number in range(len(votes)) if number != model]
    wins = sum(bool(votes[j, model] >= votes[j, k]) for j in others for k in others)
    return max(1, wins) / len(others) ** 2


def hedge(weights: Floats, votes: Floats, rate: float, number: int) -> Floats:
    """Return the weights after round `number` (from 1), normalised (SpecEM's Hedge update).

    w_i becomes w_i exp(eta reward_i) with eta = rate sqrt(1/K) / number. The weights of two models
    never change: the one comparison of each counts as won.
    """
    if len(weights) == 1:
        return np.ones(1)
    eta = rate * math.sqrt(1 / len(weights)) / number
    rewards = np.array([reward(votes, model) for model in range(len(weights))])
    grown = weights * np.exp(eta * (rewards - rewards.max()))
    return np.asarray(grown / grown.sum())


@dataclass
class Ballot:
    """The fusion rule of one example: F(s) is minus the weighted total of the votes for s.

    A verifier's votes are its mean log-probabilities of the drafts, or their softmax. With a
    learning `rate`, Hedge updates the weights before they count.
    """

    votes: str
    rate: float | None
    weights: Floats
    rounds: int = 0

    def __call__(self, pool: Sequence[Candidate], weights: Sequence[float]) -> list[float]:
        votes = -np.array([candidate.nll for candidate in pool]).T
        if self.votes == "softmax":
            votes = softmax(votes)
        self.rounds += 1
        if self.rate is not None:
            by_model = np.full((len(weights), len(weights)), -math.inf)  # if its draft is out
            for number, candidate in enumerate(pool):
                by_model[:, candidate.proposers] = votes[:, [number]]
            self.weights = hedge(self.weights, by_model, self.rate, self.rounds)
        return [-float(total) for total in self.weights @ votes]


Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SpecFuseOptions(MethodOptions):
    """How drafts are written and voted on."""

    window: Positive = 10
    """maximum tokens of a draft"""
    votes: Literal["softmax", "mean_nll"] = "softmax"
    """a model's vote for a draft: its softmax over the drafts, or its mean log-probability"""
    hedge: Above0 | None = None
    """learning rate of the models' weights; null: constant weights, as always with two models"""
    sampling: bool = False
    """draw drafts instead of writing them greedily"""
    temperature: Above0 = 0.6
    """temperature of `sampling`"""
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    """top-p of `sampling`: draw from the likeliest tokens that together have this probability"""
    seed: int = 0
    """seed of `sampling`, combined with the prompt"""


class SpecFuse(Method[SpecFuseOptions]):
    """Every model drafts the next tokens, all vote on all drafts, the highest total is taken.

    The published code adds up mean raw logits, which depend on the scale of a model, and also cuts
    finished drafts; here log-probabilities vote, END included, and only a full window is cut.
    """

    name = "specfuse"
    Options = SpecFuseOptions

    def decode(self, example: Example) -> Program[None]:
        options = self.options
        picks = {seq: self._pick(number, seq) for number, seq in enumerate(example.sequences)}
        ballot = Ballot(options.votes, options.hedge, np.array(example.weights))

        def propose(sequence: TokenSequence) -> Program[Proposal]:
            left = example.limits.max_new_tokens - sequence.generated
            pick = picks[sequence]
            return [
                (yield from draft(sequence, options.window, left, example.stops_after, pick))
            ], ()

        return fuse_rounds(example, propose, ballot)

    def _pick(self, number: int, sequence: TokenSequence) -> Pick:
        if not self.options.sampling:
            return lambda following: following.greedy
        prompt_ids = sequence.ids[: sequence.prompt_length]
        random = Random(f"{self.options.seed} {number} {prompt_ids}")
        return nucleus(self.options.temperature, self.options.top_p, random)


def draft(
    sequence: TokenSequence, window: int, left: int, stops: StopStrings, pick: Pick
) -> Program[Candidate]:
    """Write `window` tokens, fewer where END is picked or the text holds a stop string.

    An unfinished character is finished, then the draft is cut back to its last complete word, if it
    has one. Where fewer than `window` tokens are `left` in all, it is cut there, as `single` is.
    """
    model = sequence.model
    anchor = model.anchor(sequence.root.last_ids(LONGEST_CONTEXT))
    steps = [empty_span(sequence)]
    tokens: list[int] = []
    last = steps[0]
    most = min(window, left)
    while len(tokens) < most + (UTF8_BYTES - 1) * last.text.endswith(UNFINISHED):
        if stops.within(last.text):
            break
        yield from evaluated([last.node])
        assert last.node.next is not None
        token = pick(last.node.next)
        if token in model.stop_ids:
            return Candidate(last.text, ends=True, nodes=last.nodes)
        tokens.append(token)
        last = Candidate(anchor.added(tokens), nodes={sequence: last.node.child(token)})
        steps.append(last)
    if last.node.logprob is None:  # a sampled token need not be among the likeliest ids
        yield from evaluated([last.node])
    whole = stops.within(last.text) or left < window
    return last if whole else last_complete_word(steps)


def last_complete_word(steps: Sequence[Candidate]) -> Candidate:
    """Return the last of the growing `steps` at whose end a word ends, or the very last."""
    text = steps[-1].text
    for step in reversed(steps):
        if step.text.strip() and not step.text.endswith(UNFINISHED):
            following = text[len(step.text) :]
            if step.text[-1].isspace() or following[:1].isspace():
                return step
    return steps[-1]
