"""Holm's correction for several tests."""

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p-values, in the order of the given ones.

    The k-th smallest of m is multiplied by m - k + 1, made no smaller than the one before it, and
    cut at 1: rejecting those below 0.05 keeps the chance of any false rejection below 5 %,
    whatever the dependence between the tests. S. Holm, A simple sequentially rejective multiple
    test procedure, 1979.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, floor = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        floor = max(floor, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = floor
    return adjusted
