"""95 % intervals: Wilson for shares, else a seeded bootstrap of enough rows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_Z = 1.959963984540054
RESAMPLES = 1000
FEWEST_ROWS = 50
"""Of fewer, the bootstrap's interval covers too little (tests/metrics/test_few_rows.py)."""
MOST_BIAS = 0.5
"""In standard errors: with a larger bias, the bootstrap does not fit a statistic."""
INTERVALS = f"Wilson; bootstrap for corpus scores and means, of {FEWEST_ROWS} rows or more"
"""What tables and figures say of their intervals."""
_SEED = 20240601


@dataclass(frozen=True, slots=True)
class Estimate:
    """A score in percent with both ends of its 95 % interval, which are None if it has none.

    An interval without width says nothing, so it is none. One that does not hold the value is kept,
    and refused where a scorer returns it.
    """

    value: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.low is None or self.high is None or abs(self.high - self.low) <= 1e-9:
            object.__setattr__(self, "low", None)
            object.__setattr__(self, "high", None)

    def of_rows(self, n: int) -> "Estimate":
        """Return the estimate of `n` rows by a bootstrap, without an interval if these are few."""
        return self if n >= FEWEST_ROWS else Estimate(self.value)

    def ends(self, digits: int = 1, *, form: str = "{} to {}", sign: str = "") -> str:
        """Return both ends for a reader, with more digits where these are the same; "" of none."""
        if self.low is None or self.high is None:
            return ""
        low, high = (f"{end:{sign}.{digits}f}" for end in (self.low, self.high))
        return (
            form.format(low, high) if low != high else self.ends(digits + 1, form=form, sign=sign)
        )


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


@cache
def clopper_pearson(successes: int, trials: int, outside: float = 0.05) -> tuple[float, float]:
    """Return the exact interval of a share that it lies outside of with at most this chance.

    C. J. Clopper and E. S. Pearson, The use of confidence or fiducial limits illustrated in the
    case of the binomial, Biometrika 26, 1934.
    """
    failures = trials - successes
    return _least(successes, trials, outside / 2), 1 - _least(failures, trials, outside / 2)


def _least(successes: int, trials: int, chance: float) -> float:
    """Return the share that gives so many successes or more with this chance."""
    if not successes:
        return 0.0
    low, high = 0.0, successes / trials
    while low < (middle := (low + high) / 2) < high:
        enough = binomial_tail(successes, trials, middle) < chance
        low, high = (middle, high) if enough else (low, middle)
    return low


def binomial_tail(successes: int, trials: int, share: float) -> float:
    """Return the chance of so many successes or more, with a share strictly between 0 and 1."""
    import numpy as np

    ways, count = log_factorials(trials), np.arange(successes, trials + 1)
    logs = ways[trials] - ways[count] - ways[trials - count]
    return float(
        np.exp(logs + count * math.log(share) + (trials - count) * math.log1p(-share)).sum()
    )


@cache
def log_factorials(most: int) -> "np.ndarray":
    """Return the logarithms of 0! to `most`!."""
    import numpy as np

    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, most + 1)))])


def mean(values: Sequence[float]) -> Estimate:
    """Return the mean of values in [0, 1] in percent, with its bootstrap interval."""
    import numpy as np

    column = 100 * np.asarray(values, dtype=np.float64)
    low, high = bootstrap(len(column), lambda chosen: float(column[chosen].mean()))
    return Estimate(float(column.mean()), low, high)


def bootstrap(
    count: int, statistic: Callable[["np.ndarray"], float]
) -> tuple[float, float] | tuple[None, None]:
    """Return the percentile interval of a statistic of `count` examples; same draws every call.

    `statistic` takes the indices of a resample, `count` of them drawn with replacement. A statistic
    that the bootstrap does not fit has no interval: see `fits`.
    """
    import numpy as np

    draw = np.random.default_rng(_SEED)
    values = [statistic(draw.integers(0, count, count)) for _ in range(RESAMPLES)]
    if not fits(values, statistic(np.arange(count))):
        return None, None
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def fits(resampled: "Sequence[float] | np.ndarray", observed: float) -> bool:
    """Whether the mean of a statistic's resamples is within `MOST_BIAS` of the observed value.

    It is not for what rows add by being different, such as the share of distinct words: a resample
    has fewer different rows (B. Efron and R. J. Tibshirani, An introduction to the bootstrap, 1993,
    chapter 10).
    """
    import numpy as np

    if not len(resampled):
        return True
    bias = abs(float(np.mean(resampled)) - observed)
    return bias <= MOST_BIAS * float(np.std(resampled)) + 1e-9
