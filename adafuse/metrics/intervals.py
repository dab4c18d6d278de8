"""95 % intervals: Wilson for shares, else a seeded bootstrap of enough rows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_Z = 1.959963984540054
RESAMPLES = 1000
FEWEST_ROWS = 50
"""Of fewer, the bootstrap's interval covers too little (tests/metrics/test_few_rows.py)."""
INTERVALS = f"Wilson; bootstrap for corpus scores and means, of {FEWEST_ROWS} rows or more"
"""What tables and figures say of their intervals."""
_SEED = 20240601


@dataclass(frozen=True, slots=True)
class Estimate:
    """A score in percent with both ends of its 95 % interval, which are None if it has none.

    An interval without width says nothing, so it is none.
    """

    value: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.low is None or self.high is None or not self.high - self.low > 1e-9:
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
