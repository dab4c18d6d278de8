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
    """Return a pick from the likeliest ids that together have the probability `top_p`."""

    def pick(following: NextToken) -> int:
        probabilities = (following.vector / temperature).softmax(dim=-1)
        likeliest, ids = probabilities.sort(descending=True, stable=True)
        mass = likeliest.double().cumsum(dim=0)
        kept = max(1, int((mass - likeliest < top_p).sum()))
        place = int((mass[:kept] <= random.random() * mass[kept - 1]).sum())
        return int(ids[min(place, kept - 1)])

    return pick
