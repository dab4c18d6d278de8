"""95 % intervals: Wilson for shares, a seeded bootstrap for corpus scores."""

import math
import random
from collections.abc import Callable, Sequence

_Z = 1.959963984540054
RESAMPLES = 1000
_SEED = 20240601


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return the Wilson score interval of a share, both ends in [0, 1].

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, 1927.
    """
    if not trials:
        raise ValueError("no trials")
    share, square = successes / trials, _Z * _Z
    scale = 1 + square / trials
    centre = (share + square / (2 * trials)) / scale
    half = _Z * math.sqrt(share * (1 - share) / trials + square / (4 * trials**2)) / scale
    low = 0.0 if successes == 0 else centre - half
    return low, 1.0 if successes == trials else centre + half


def bootstrap(
    count: int, statistic: Callable[[Sequence[int]], float], resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Return the percentile interval of a statistic of `count` examples.

    Args:
        count: how many examples there are.
        statistic: takes the indices of a resample, `count` of them drawn with replacement.
        resamples: how many are drawn; the draws are the same in every call.
    """
    draw = random.Random(_SEED)
    indices = range(count)
    values = sorted(statistic(draw.choices(indices, k=count)) for _ in range(resamples))
    return _quantile(values, 0.025), _quantile(values, 0.975)


def _quantile(values: Sequence[float], share: float) -> float:
    """Interpolate linearly between the two nearest of the sorted values."""
    place = share * (len(values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)
