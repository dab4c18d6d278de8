"""`specfuse`: every model drafts, all models verify all drafts (arXiv 2412.07380, SpecEM)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from adafuse.decoding.candidates import Candidate
from adafuse.decoding.method import Method
from adafuse.decoding.round import Example, Proposal, fuse_rounds
from adafuse.decoding.words import UTF8_BYTES, StopStrings, unwritten
from adafuse.engine.node import NextToken, Program, TokenSequence, evaluated
from adafuse.options import MethodOptions, Positive, doc
from adafuse.tokenization.text import LONGEST_CONTEXT, UNFINISHED

Pick = Callable[[NextToken], int]


def greedy(following: NextToken) -> int:
    """Return the likeliest id."""
    return following.greedy


def generator(seed: int, number: int, sequence: TokenSequence) -> Random:
    """Return the generator of one example and its model `number`, whatever else is decoded."""
    return Random(f"{seed} {number} {sequence.ids[: sequence.prompt_length]}")


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


Votes = Sequence[Sequence[float]]
"""votes[j][i] is what verifier j (a model) gives candidate i (a draft)."""


def softmax_vote(nll: Sequence[float]) -> list[float]:
    """Return one verifier's softmax over the candidates of their mean log-probabilities."""
    best = min(nll)
    terms = [math.exp(best - own) for own in nll]
    total = math.fsum(terms)
    return [term / total for term in terms]


def logprob_vote(nll: Sequence[float]) -> list[float]:
    """Return one verifier's mean log-probabilities of the candidates."""
    return [-own for own in nll]


VOTES: dict[str, Callable[[Sequence[float]], list[float]]] = {
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

    vote: Callable[[Sequence[float]], list[float]]
    rate: float | None
    weights: Sequence[float]
    number: int = 0

    def __call__(self, pool: Sequence[Candidate], weights: Sequence[float]) -> list[float]:
        """Let all verifiers vote; with Hedge the votes count with the weights they lead to."""
        votes = [self.vote([candidate.nll[j] for candidate in pool]) for j in range(len(weights))]
        self.number += 1
        if self.rate is not None:
            drafts = [_for_drafts(row, pool, len(weights)) for row in votes]
            self.weights = hedge(self.weights, drafts, self.rate, self.number)
        return [-total for total in totals(votes, self.weights)]


def _for_drafts(row: Sequence[float], pool: Sequence[Candidate], models: int) -> list[float]:
    """Give every model the vote for the candidate that it wrote; -inf if that is out."""
    written = {model: vote for vote, s in zip(row, pool, strict=True) for model in s.proposers}
    return [written.get(model, -math.inf) for model in range(models)]


Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SpecFuseOptions(MethodOptions):
    """How drafts are written and voted on."""

    window: Annotated[Positive, doc("the most tokens of a draft")] = 10
    votes: Annotated[
        Literal["softmax", "mean_nll"],
        doc(
            "what a model gives to a draft: its softmax over the drafts, or its mean"
            " log-probability"
        ),
    ] = "softmax"
    hedge: Annotated[
        Above0 | None,
        doc("learning rate of the models' weights; null: they stay, as they do with two models"),
    ] = None
    sampling: Annotated[bool, doc("draw drafts instead of writing them greedily")] = False
    temperature: Annotated[Above0, doc("that of `sampling`")] = 0.6
    top_p: Annotated[
        Annotated[float, Field(gt=0, le=1)],
        doc("draw from the likeliest tokens that together have this probability"),
    ] = 0.9
    seed: Annotated[int, doc("with the prompt, decides what is drawn")] = 0


class SpecFuse(Method[SpecFuseOptions]):
    """Every model drafts the next tokens, all vote on all drafts, the highest total is taken.

    The published code adds up mean raw logits, which depend on the scale of a model, and also cuts
    finished drafts; here log-probabilities vote, END included, and only a full window is cut.
    """

    name = "specfuse"
    Options = SpecFuseOptions

    def decode(self, example: Example) -> Program[None]:
        """Draft, verify and commit until the text ends."""
        options = self.options
        picks = {seq: self._pick(number, seq) for number, seq in enumerate(example.sequences)}
        ballot = Ballot(VOTES[options.votes], options.hedge, example.weights)

        def propose(sequence: TokenSequence) -> Program[Proposal]:
            left = example.limits.max_new_tokens - sequence.generated
            pick = picks[sequence]
            return [(yield from draft(sequence, options.window, left, example.stops, pick))], ()

        return fuse_rounds(example, propose, ballot)

    def _pick(self, number: int, sequence: TokenSequence) -> Pick:
        if not self.options.sampling:
            return greedy
        random = generator(self.options.seed, number, sequence)
        return nucleus(self.options.temperature, self.options.top_p, random)


def draft(
    sequence: TokenSequence, window: int, left: int, stops: StopStrings, pick: Pick
) -> Program[Candidate]:
    """Write `window` tokens, fewer where END is picked or the text holds a stop string.

    Only at `window` tokens a word can be unfinished: the draft is cut back to its last complete
    one, or stays if there is none. A character in the making is finished first. Where no more than
    `left` tokens may be written in all, and that is less, the text is cut there, as `single` is.
    """
    model = sequence.model
    anchor = model.anchor(sequence.root.last_ids(LONGEST_CONTEXT))
    steps = [unwritten(sequence)]
    tokens: list[int] = []
    last = steps[0]
    while not (stops.within(last.text) or _is_full(last.text, len(tokens), min(window, left))):
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
    """Return the longest of the growing `steps` after which a word ends, or the last if none is.

    A word ends before and after whitespace.
    """
    text = steps[-1].text
    for step in reversed(steps):
        if step.text.strip() and not step.text.endswith(UNFINISHED):
            following = text[len(step.text) :]
            if step.text[-1].isspace() or following[:1].isspace():
                return step
    return steps[-1]


def _is_full(text: str, tokens: int, window: int) -> bool:
    return tokens >= window + (UTF8_BYTES - 1 if text.endswith(UNFINISHED) else 0)
