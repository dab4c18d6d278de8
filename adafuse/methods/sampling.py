"""Choosing the next token: greedily, or sampled so that the same prompt gives the same text."""

from collections.abc import Callable
from random import Random

from adafuse.engine.node import NextToken, Sequence

Pick = Callable[[NextToken], int]


def greedy(following: NextToken) -> int:
    """Return the likeliest id."""
    return following.greedy


def generator(seed: int, number: int, sequence: Sequence) -> Random:
    """Return the generator of one example and its model `number`, whatever else is decoded."""
    return Random(f"{seed} {number} {sequence.ids[: sequence.prompt_length]}")


def nucleus(temperature: float, top_p: float, random: Random) -> Pick:
    """Return a pick from the likeliest ids that together have the probability `top_p`.

    They are lined up by id, not by probability: rounding could swap almost equal ones.
    """

    def pick(following: NextToken) -> int:
        logprobs = following.vector.double()
        probabilities = ((logprobs - logprobs.max()) / temperature).softmax(dim=-1)
        likeliest = probabilities.sort(descending=True).values
        above = likeliest.cumsum(dim=0) - likeliest
        smallest = likeliest[max(1, int((above < top_p).sum())) - 1]
        mass = (probabilities * (probabilities >= smallest)).cumsum(dim=0)
        return int((mass < (1 - random.random()) * mass[-1]).sum())

    return pick
