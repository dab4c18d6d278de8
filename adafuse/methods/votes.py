"""Voting on the drafts of a round, and weights that follow the votes (SpecFuse, SpecEM).

Models are verifiers j and candidates i; votes[j][i] is what verifier j gives candidate i.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adafuse.methods.fusion import Scored, SpanScore

Votes = Sequence[Sequence[float]]


def softmax_vote(scores: Sequence[SpanScore]) -> list[float]:
    """Return one verifier's softmax over the candidates of their mean log-probabilities."""
    best = min(score.nll for score in scores)
    terms = [math.exp(best - score.nll) for score in scores]
    total = math.fsum(terms)
    return [term / total for term in terms]


def logprob_vote(scores: Sequence[SpanScore]) -> list[float]:
    """Return one verifier's mean log-probabilities of the candidates."""
    return [-score.nll for score in scores]


VOTES: dict[str, Callable[[Sequence[SpanScore]], list[float]]] = {
    "softmax": softmax_vote,
    "mean_nll": logprob_vote,
}


def totals(votes: Votes, weights: Sequence[float]) -> list[float]:
    """Return the weighted sum of the votes for each candidate."""
    columns = zip(*votes, strict=True)
    return [
        math.fsum(weight * vote for weight, vote in zip(weights, column, strict=True))
        for column in columns
    ]


def reward(votes: Votes, model: int) -> float:
    """Return the share of comparisons that a model's draft wins, at least one of them.

    Each of the other verifiers compares it with the draft of each of the other models; a tie is
    won. votes[j][i] is for the draft of model i.
    """
    others = [number for number in range(len(votes)) if number != model]
    wins = sum(votes[j][model] >= votes[j][k] for j in others for k in others)
    return max(1, wins) / len(others) ** 2


def hedge(weights: Sequence[float], votes: Votes, rate: float, number: int) -> list[float]:
    """Return the weights after round `number` (from 1), normalised (SpecEM's Hedge update).

    w_i becomes w_i exp(eta reward_i) with eta = rate sqrt(1/K) / number. The weights of two models
    never change: each has one comparison, and at least one counts as won.
    """
    if len(weights) == 1:
        return [1.0]
    eta = rate * math.sqrt(1 / len(weights)) / number
    rewards = [reward(votes, model) for model in range(len(weights))]
    largest = max(rewards)
    grown = [w * math.exp(eta * (r - largest)) for w, r in zip(weights, rewards, strict=True)]
    total = math.fsum(grown)
    return [weight / total for weight in grown]


@dataclass
class Ballot:
    """The fusion rule of one example: F(s) is minus the total of the votes for s.

    `vote` makes one verifier's votes; `rate` is Hedge's learning rate (None: the weights stay),
    `number` counts the rounds.
    """

    vote: Callable[[Sequence[SpanScore]], list[float]]
    rate: float | None
    weights: Sequence[float]
    number: int = 0

    def __call__(self, pool: Sequence[Scored], weights: Sequence[float]) -> list[float]:
        """Let all verifiers vote; with Hedge the votes count with the weights they lead to."""
        votes = [self.vote([s.scores[j] for s in pool]) for j in range(len(weights))]
        self.number += 1
        if self.rate is not None:
            drafts = [_for_drafts(row, pool, len(weights)) for row in votes]
            self.weights = hedge(self.weights, drafts, self.rate, self.number)
        return [-total for total in totals(votes, self.weights)]


def _for_drafts(row: Sequence[float], pool: Sequence[Scored], models: int) -> list[float]:
    """Give every model the vote for the candidate that it wrote; -inf if that is out."""
    written = {model: vote for vote, s in zip(row, pool, strict=True) for model in s.proposers}
    return [written.get(model, -math.inf) for model in range(models)]
