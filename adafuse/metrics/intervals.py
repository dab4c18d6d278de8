"""95 % intervals: Wilson for shares, a seeded bootstrap for means and corpus scores."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_Z = 1.959963984540054
RESAMPLES = 1000
_SEED = 20240601


@dataclass(frozen=True, slots=True)
class Estimate:
    """A score in percent with both ends of its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return the Wilson score interval of a share, both ends in [0, 1].

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, 1927.
    """
    share, square = successes / trials, _Z * _Z
    scale = 1 + square / trials
    centre = (share + square / (2 * trials)) / scale
    half = _Z * math.sqrt(share * (1 - share) / trials + square / (4 * trials**2)) / scale
    low = 0.0 if successes == 0 else centre - half
    return low, 1.0 if successes == trials else centre + half


def mean(values: Sequence[float]) -> Estimate:
    """Return the mean of values in [0, 1] in percent, with its bootstrap interval."""
    import numpy as np

    column = 100 * np.asarray(values, dtype=np.float64)
    low, high = bootstrap(len(column), lambda chosen: float(column[chosen].mean()))
    return Estimate(float(column.mean()), low, high)


def bootstrap(count: int, statistic: Callable[["np.ndarray"], float]) -> tuple[float, float]:
    """Return the percentile interval of a statistic of `count` examples; same draws every call.

    `statistic` takes the indices of a resample, `count` of them drawn with replacement.
    """
    import numpy as np

    draw = np.random.default_rng(_SEED)
    values = [statistic(draw.integers(0, count, count)) for _ in range(RESAMPLES)]
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
