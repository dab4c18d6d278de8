"""`specfuse`: every model drafts, all models verify all drafts (arXiv 2412.07380, SpecEM)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from adafuse.decoding.candidates import Span
from adafuse.decoding.fusion import softmax
from adafuse.decoding.method import Method
from adafuse.decoding.round import Example, Proposal, fuse_rounds
from adafuse.decoding.sampling import nucleus_weights
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
        mass = nucleus_weights(following, temperature, top_p).cumsum(dim=0)
        return int((mass < (1 - random.random()) * mass[-1]).sum())

    return pick


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


def staying(quality: Floats, temperature: float) -> list[int]:
    """Return which models stay, best first, by the `quality` of each so far (model exit).

    P = softmax(quality / T) with the `temperature` T; round(exp(H(P))) models stay, H its entropy:
    all of them while they are alike, one where it has all of P. Ties go to the earlier model.
    """
    p = softmax(quality / temperature)
    entropy = -float(sum(share * math.log(share) for share in p if share > 0))
    return [int(k) for k in np.argsort(-quality, kind="stable")[: round(math.exp(entropy))]]


@dataclass
class Ballot:
    """The fusion rule of one example: F(s) is minus the weighted total of the votes for s.

    A verifier's votes are its mean log-probabilities of the drafts, or their softmax. With a
    learning rate, Hedge updates the weights before they count; with an exit temperature, models
    leave after it. A model's `quality` adds up the totals of the softmax votes for its drafts.
    """

    example: Example
    options: "SpecFuseOptions"
    weights: Floats
    quality: Floats

    def __call__(
        self, pool: Sequence[Span], weights: Sequence[float]
    ) -> tuple[list[float], Sequence[float]]:
        active = list(self.example.active)
        nll = np.array([[candidate.nll[k] for candidate in pool] for k in active])
        softmaxed = softmax(-nll)
        votes = softmaxed if self.options.votes == "softmax" else -nll
        if self.options.hedge is not None:
            of_drafts = self._of_drafts(pool, votes, active, missing=-math.inf)
            number = len(self.example.rounds) + 1
            rate = self.options.hedge
            self.weights[active] = hedge(self.weights[active], of_drafts, rate, number)
        shares = self.weights[active]
        if self.options.exit_temperature is not None:
            of_drafts = self._of_drafts(pool, softmaxed, active, missing=0.0)
            self.quality[active] += shares @ of_drafts / shares.sum()
            places = staying(self.quality[active], self.options.exit_temperature)
            stay = [active[place] for place in places]
            if self.weights[stay].sum() > 0:  # else nobody who stays would have a vote
                self.example.out.update({*active} - {*stay})
        used = [float(self.weights[k]) if k in active else 0.0 for k in range(len(self.weights))]
        return [-float(total) for total in shares @ votes], used

    @staticmethod
    def _of_drafts(
        pool: Sequence[Span], votes: Floats, active: Sequence[int], missing: float
    ) -> Floats:
        """Return each verifier's votes for each model's draft; `missing` if the draft is out."""
        of_drafts = np.full((len(active), len(active)), missing)
        for number, candidate in enumerate(pool):
            of_drafts[:, [active.index(k) for k in candidate.proposers]] = votes[:, [number]]
        return of_drafts


Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SpecFuseOptions(MethodOptions):
    """How drafts are written and voted on."""

    window: Positive = 10
    """maximum tokens of a draft"""
    votes: Literal["softmax", "mean_nll"] = "softmax"
    """a model's vote for a draft: its softmax over the drafts, or its mean log-probability"""
    hedge: Above0 | None = None
    """learning rate of the models' weights; null: constant weights; with two models they are always
    constant"""
    exit_temperature: Above0 | None = None
    """temperature of the model exit, which drops models whose drafts get few votes; null: none"""
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

    Model exit (2412.07380v2) and Hedge weights (SpecEM, 2412.07380v3) are off by default: the first
    saves forwards and costs a little quality, the second is off in the published code, too. Of the
    exit only a summary was at hand, which names the models' cumulative quality, an entropy and the
    temperature of a softmax; the formula (`staying`) is ours.
    """

    name = "specfuse"
    Options = SpecFuseOptions

    @property
    def reads_distributions(self) -> bool:
        return self.options.sampling

    def decode(self, example: Example) -> Program[None]:
        options = self.options
        picks = {seq: self._pick(number, seq) for number, seq in enumerate(example.sequences)}
        weights = np.array(example.weights, dtype=np.float64)
        ballot = Ballot(example, options, weights, np.zeros(len(weights)))

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
) -> Program[Span]:
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
        if token in model.end_ids:
            return Span(last.text, ends=True, nodes=last.nodes)
        tokens.append(token)
        last = Span(anchor.added(tokens), nodes={sequence: last.node.child(token)})
        steps.append(last)
    if last.node.logprob is None:  # a sampled token need not be among the likeliest ids
        yield from evaluated([last.node])
    whole = stops.within(last.text) or left < window
    return last if whole else last_complete_word(steps)


def last_complete_word(steps: Sequence[Span]) -> Span:
    """Return the last of the growing `steps` at whose end a word ends, or the very last."""
    text = steps[-1].text
    for step in reversed(steps):
        if step.text.strip() and not step.text.endswith(UNFINISHED):
            following = text[len(step.text) :]
            if step.text[-1].isspace() or following[:1].isspace():
                return step
    return steps[-1]
