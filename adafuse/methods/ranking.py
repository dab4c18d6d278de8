"""From pairwise logits to one choice (arXiv 2306.02561, section 3.3).

In a comparison matrix M, M[i][j] is the logit l(i, j) that candidate i, shown first, is better
than j; the diagonal is 0. l is not antisymmetric, so both orders of a pair count.
"""

from collections.abc import Sequence

Matrix = Sequence[Sequence[float]]


def preference(matrix: Matrix, i: int, j: int) -> float:
    """Return l(i, j) - l(j, i): positive where i is preferred, whatever the order shown."""
    return matrix[i][j] - matrix[j][i]


def scores(matrix: Matrix) -> tuple[float, ...]:
    """Return each candidate's mean preference over all candidates, itself included."""
    every = range(len(matrix))
    return tuple(sum(preference(matrix, i, j) for j in every) / len(matrix) for i in every)


def ranks(values: Sequence[float]) -> tuple[int, ...]:
    """Return ranks from 1, highest value first; equal values share the better rank."""
    return tuple(1 + sum(other > value for other in values) for value in values)


def best_of(matrix: Matrix, order: Sequence[int]) -> int:
    """Return the survivor of one bubble pass over the candidates in `order`.

    Each newcomer meets the best so far, which stays where neither is preferred. With cyclic
    preferences the survivor depends on the order.
    """
    best = order[0]
    for challenger in order[1:]:
        if preference(matrix, challenger, best) > 0:
            best = challenger
    return best
