"""McNemar's exact test and Newcombe's interval against published cases, scipy and symmetry."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from adafuse.metrics.paired import PairedCounts, count_pairs, mcnemar_exact, newcombe

DISCORDANT = st.tuples(st.integers(0, 3000), st.integers(0, 3000))
COUNTS = st.builds(PairedCounts, *[st.integers(0, 2000)] * 4).filter(lambda counts: counts.n > 0)

# Complete response before and after consolidation therapy (Cavo et al. 2012), worked through in
# Fagerland, Lydersen and Laake, Statistical Analysis of Contingency Tables, 2017, chapter 8.
CAVO = PairedCounts(both=59, wins=6, losses=16, neither=80)
# Airway hyper-responsiveness before and after transplantation (Bentur et al. 2009), same source.
BENTUR = PairedCounts(both=1, wins=1, losses=7, neither=12)


def test_the_published_cases() -> None:
    assert mcnemar_exact(6, 16) == pytest.approx(0.0525, abs=5e-5)
    assert [round(end, 4) for end in newcombe(CAVO)] == [-0.1186, -0.0046]
    assert CAVO.difference == pytest.approx(-10 / 161)
    assert mcnemar_exact(1, 7) == pytest.approx(0.0703, abs=5e-5)
    assert [round(end, 3) for end in newcombe(BENTUR)] == [-0.507, -0.026]


def test_closed_forms() -> None:
    assert mcnemar_exact(0, 0) == 1
    assert mcnemar_exact(0, 5) == 2 / 2**5
    assert mcnemar_exact(1, 9) == 2 * (1 + 10) / 2**10
    assert mcnemar_exact(7, 7) == 1
    assert mcnemar_exact(0, 6000) == 0  # below the smallest float, not an error


@given(DISCORDANT)
def test_the_p_value_is_that_of_scipy_s_binomial_test(pair: tuple[int, int]) -> None:
    wins, losses = pair
    ours = mcnemar_exact(wins, losses)
    if wins + losses:
        theirs = binomtest(wins, wins + losses).pvalue
        # scipy returns 0 for some p below 1e-265; exact fractions give ours.
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-250)
    assert 0 <= ours <= 1


@given(DISCORDANT)
def test_the_p_value_does_not_change_when_the_runs_are_swapped(pair: tuple[int, int]) -> None:
    assert mcnemar_exact(*pair) == mcnemar_exact(*reversed(pair))


@given(st.integers(0, 2000))
def test_as_many_wins_as_losses_say_nothing(count: int) -> None:
    assert mcnemar_exact(count, count) == 1


@given(COUNTS)
def test_the_interval_holds_the_difference_and_stays_in_range(counts: PairedCounts) -> None:
    low, high = newcombe(counts)
    assert -1 - 1e-12 <= low <= counts.difference <= high <= 1 + 1e-12


@given(COUNTS)
def test_swapping_the_runs_mirrors_the_interval(counts: PairedCounts) -> None:
    swapped = PairedCounts(counts.both, counts.losses, counts.wins, counts.neither)
    low, high = newcombe(counts)
    assert newcombe(swapped) == pytest.approx((-high, -low), abs=1e-12)


def test_without_correlation_it_is_the_interval_of_two_independent_shares() -> None:
    """phi is 0 where wins * losses = both * neither: the ends then add as squares."""
    from adafuse.metrics.intervals import wilson

    low, high = newcombe(PairedCounts(both=20, wins=40, losses=10, neither=20))
    (low_1, high_1), (low_2, high_2) = wilson(60, 90), wilson(30, 90)
    assert low == pytest.approx(1 / 3 - ((2 / 3 - low_1) ** 2 + (high_2 - 1 / 3) ** 2) ** 0.5)
    assert high == pytest.approx(1 / 3 + ((high_1 - 2 / 3) ** 2 + (1 / 3 - low_2) ** 2) ** 0.5)


def test_rows_are_counted_by_what_became_of_them() -> None:
    first = np.array([True, True, True, False, False, True])
    second = np.array([True, False, False, True, False, True])
    assert count_pairs(first, second) == PairedCounts(both=2, wins=2, losses=1, neither=1)
