"""Intervals against closed forms and a worked case."""

import math
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from adafuse.metrics.intervals import Estimate, bootstrap, mean, wilson
from adafuse.metrics.scorer import Outcome, share_right


def test_wilson_agrees_with_a_published_case() -> None:
    # 81 of 263: 0.2553 to 0.3662 (Newcombe 1998, table I, method 3)
    low, high = wilson(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_ends_solve_its_equation(case: tuple[int, int]) -> None:
    """Each end p satisfies (share - p)^2 = z^2 p (1 - p) / n."""
    successes, trials = case
    share, square = successes / trials, 1.959963984540054**2
    for end in wilson(successes, trials):
        assert 0 <= end <= 1
        assert math.isclose((share - end) ** 2, square * end * (1 - end) / trials, abs_tol=1e-9)


def test_the_bootstrap_of_a_mean_is_near_its_normal_interval_and_always_the_same() -> None:
    values = [float(number % 10) for number in range(200)]
    low, high = bootstrap(len(values), lambda chosen: fmean(values[index] for index in chosen))
    half = 1.96 * math.sqrt(fmean((v - fmean(values)) ** 2 for v in values) / len(values))
    assert abs(low - (fmean(values) - half)) < 0.1
    assert abs(high - (fmean(values) + half)) < 0.1
    again = bootstrap(len(values), lambda chosen: fmean(values[index] for index in chosen))
    assert again == (low, high)


def test_the_bootstrap_of_a_constant_has_no_width() -> None:
    assert bootstrap(7, lambda chosen: 3.0) == (3.0, 3.0)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_agrees_with_scipy(case: tuple[int, int]) -> None:
    exact = stats.binomtest(*case).proportion_ci(method="wilson")
    assert wilson(*case) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_the_bootstrap_of_a_mean_agrees_with_scipy_on_the_same_draws() -> None:
    values = np.random.default_rng(3).random(60)
    other = stats.bootstrap(
        (values,), np.mean, n_resamples=1000, method="percentile", vectorized=False,
        rng=np.random.default_rng(20240601), batch=1,
    )  # fmt: skip
    ours = bootstrap(60, lambda chosen: float(values[chosen].mean()))
    ends = other.confidence_interval
    assert ours == pytest.approx((ends.low, ends.high), abs=1e-6)


def test_shares_and_means_are_percent() -> None:
    outcomes = [Outcome("", "", (), value) for value in (1.0, 0.0, 0.0, 0.0)]
    assert share_right(outcomes).value == 25
    assert mean([1.0, 0.5, 0.0, 0.5]).value == 50
    assert mean([1.0] * 5) == Estimate(100, 100, 100)
