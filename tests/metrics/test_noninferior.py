"""Non-inferiority and power against scipy, enumeration of all tables, and simulation."""

import numpy as np
import pytest
from scipy import stats

from adafuse.metrics import power
from adafuse.metrics.compare import Comparison, compare_runs
from adafuse.metrics.intervals import clopper_pearson
from adafuse.metrics.noninferior import LEVEL, exact, resampled, score_statistic, tail
from adafuse.metrics.paired import PairedCounts
from adafuse.metrics.scorer import Metric, Outcome

from .conftest import accuracy, scored, translation

RUNS = {"m": ("single", ["m"]), "both": ("adafuse", ["m", "l"])}
N, MARGIN = 40, 5.0
TABLES = [(wins, losses) for wins in range(N + 1) for losses in range(N + 1 - wins)]


def pairs(wins: int, losses: int, n: int) -> PairedCounts:
    return PairedCounts(0, wins, losses, n - wins - losses)


@pytest.mark.parametrize(("successes", "trials"), [(0, 9), (9, 9), (3, 50), (400, 3610)])
def test_clopper_pearson_is_scipy_s(successes: int, trials: int) -> None:
    ends = stats.binomtest(successes, trials).proportion_ci(method="exact")
    assert clopper_pearson(successes, trials) == pytest.approx((ends.low, ends.high), abs=1e-9)


def test_the_score_statistic_is_that_of_the_most_likely_shares() -> None:
    """Its variance against a search for the share of losses with the largest likelihood."""
    wins, losses, n, difference = 8, 5, 60, -0.05
    shares = np.linspace(0.0501, 0.5, 200_000)
    likelihood = (
        wins * np.log(shares + difference)
        + losses * np.log(shares)
        + (n - wins - losses) * np.log(1 - 2 * shares - difference)
    )
    share = shares[likelihood.argmax()]
    error = np.sqrt(n * (2 * share + difference - difference**2))
    found = score_statistic(np.array(wins), np.array(losses), n, difference)
    assert float(found) == pytest.approx((wins - losses - n * difference) / error, rel=1e-4)


@pytest.mark.parametrize("difference", [-0.05, -0.01, 0.0, 0.03])
def test_the_statistic_grows_with_wins_and_falls_with_losses(difference: float) -> None:
    wins, losses = np.indices((N + 1, N + 1))
    found = np.where(wins + losses <= N, score_statistic(wins, losses, N, difference), np.nan)
    assert not (np.diff(found, axis=0) < -1e-9).any()
    assert not (np.diff(found, axis=1) > 1e-9).any()


def _p_by_hand(wins: int, losses: int) -> float:
    """The same p-value from all tables, with scipy's multinomial and a finer search."""
    border = MARGIN / 100
    low, high = stats.binomtest(wins, N).proportion_ci(confidence_level=0.999, method="exact")
    if low > (1 - border) / 2:
        return 0.001
    tables = np.array(TABLES)
    observed = score_statistic(np.array(wins), np.array(losses), N, -border)
    reached = score_statistic(*tables.T, N, -border) >= observed - 1e-9
    counts = np.column_stack([tables, N - tables.sum(axis=1)])[reached]
    worst = max(
        stats.multinomial.pmf(counts, N, [share, share + border, 1 - 2 * share - border]).sum()
        for share in np.linspace(low, min(high, (1 - border) / 2), 200)
    )
    return float(min(1, worst + 0.001))


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (3, 1), (5, 5), (2, 6), (12, 8), (30, 4)])
def test_the_exact_p_value_is_that_of_all_tables(wins: int, losses: int) -> None:
    found = tail(pairs(wins, losses, N), -MARGIN / 100)
    assert found == pytest.approx(_p_by_hand(wins, losses), rel=2e-3)


def test_the_error_of_the_exact_test_is_at_most_its_level_everywhere() -> None:
    """Exact: the chances of all tables that reject, at the border and inside the hypothesis."""
    n = 25
    tables = np.array([table for table in TABLES if sum(table) <= n])
    p = np.array([tail(pairs(*table, n), -MARGIN / 100) for table in tables.tolist()])
    counts = np.column_stack([tables, n - tables.sum(axis=1)])
    for level in (0.01, 0.05, 0.1):
        rejected = counts[p <= level]
        for excess in (0.05, 0.06, 0.1):
            for share in np.linspace(0, (1 - excess) / 2, 60):
                chances = [share, share + excess, max(0.0, 1 - 2 * share - excess)]
                assert stats.multinomial.pmf(rejected, n, chances).sum() <= level


def test_a_simulation_at_the_border_keeps_the_level_and_has_the_power_of_its_counts() -> None:
    """300 rows, 10 % of which differ, margin 1: about half at a true gain of 2 points."""
    draw, seen = np.random.default_rng(44), {}

    def rejected(gain: float) -> float:
        shares = [(0.1 + gain) / 2, (0.1 - gain) / 2, 0.9]
        found = 0
        for wins, losses, _ in draw.multinomial(300, shares, size=4000).tolist():
            if (wins, losses) not in seen:
                seen[wins, losses] = tail(pairs(wins, losses, 300), -0.01)
            found += seen[wins, losses] <= LEVEL
        return found / 4000

    assert 0.03 < rejected(-0.01) <= 0.05 + 0.007
    assert 0.45 < rejected(0.02) < 0.55


@pytest.mark.parametrize(
    ("wins", "losses", "n"),
    [(18, 12, 300), (80, 70, 1000), (0, 0, 500), (2, 40, 200), (60, 5, 300)],
)
def test_the_bound_is_where_the_exact_p_value_passes_its_level(wins, losses, n) -> None:
    counts = pairs(wins, losses, n)
    found = exact(counts, 1.0)
    assert found.p == tail(counts, -0.01)
    assert (found.p <= LEVEL) == (found.worst >= -1)
    assert tail(counts, found.worst / 100) <= LEVEL < tail(counts, found.worst / 100 + 5e-4)
    at_the_bound = exact(counts, max(-found.worst, 0.01))
    assert at_the_bound.worst == pytest.approx(found.worst, abs=0.05)


def test_the_bootstrap_p_value_and_bound_are_counted() -> None:
    differences = np.arange(-3.0, 97.0)  # three of a hundred at -1 or below
    assert resampled(differences, 1.0).p == pytest.approx(4 / 101)
    assert resampled(differences, 1.0).worst == pytest.approx(np.quantile(differences, 0.05))


def closeness(run: str, values: list[float]):
    outcomes = [Outcome(f"r{at}", "x", ("x",), value) for at, value in enumerate(values)]
    return scored(run, outcomes, "closeness", float(np.mean(values)))


def test_a_simulation_of_means_at_the_border_is_near_the_level() -> None:
    draw, found, trials = np.random.default_rng(9), 0, 1500
    for _ in range(trials):
        rows = draw.normal(-1, 20, 200)
        found += resampled(rows[draw.integers(0, 200, (400, 200))].mean(axis=1), 1.0).p <= LEVEL
    assert 0.035 < found / trials < 0.065


def _power(n: int, differing: float, difference: float) -> float:
    """The exact power of McNemar's exact test at 5 %, by scipy."""
    total = np.arange(n + 1)
    most = stats.binom.ppf(0.025, total, 0.5)
    most = np.where(stats.binom.cdf(most, total, 0.5) <= 0.025, most, most - 1)
    share = (1 + difference / differing) / 2
    below, above = (
        stats.binom.cdf(most, total, share),
        stats.binom.sf(total - most - 1, total, share),
    )
    return float(stats.binom.pmf(total, n, differing) @ (below + above))


@pytest.mark.parametrize(
    ("differing", "n"), [(30, 100), (30, 300), (90, 300), (50, 1000), (300, 1000), (400, 3610)]
)
def test_the_detectable_difference_is_found_in_80_of_100_cases(differing: int, n: int) -> None:
    found = power.of_accuracies(pairs(differing, 0, n))
    assert 0.8 <= _power(n, differing / n, found.detectable / 100) < 0.825
    assert 0.8 <= _power(found.rows, max(differing / n, 0.02), 0.02) < 0.82


def test_few_rows_that_differ_detect_nothing_and_none_say_nothing() -> None:
    assert power.of_accuracies(pairs(3, 2, 100)).detectable is None
    assert _power(100, 0.05, 0.05) < 0.8
    assert power.of_accuracies(pairs(0, 0, 100)) is None


def test_the_power_of_means_is_that_of_a_z_test() -> None:
    error = 1.5
    found = power.of_means(error, 400, 400)
    assert stats.norm.sf(1.959964 - found.detectable / error) == pytest.approx(0.8, abs=1e-4)
    assert found.rows == np.ceil(400 * (found.detectable / 2) ** 2)
    assert power.of_means(0.1, 400, 160).rows == 125  # of which 50 differ, as the bootstrap needs


def compared(one, other, margin: float = 1.0) -> Comparison:
    return compare_runs(RUNS, [one, other], margin=margin)[0]


def test_comparisons_of_accuracies_have_all_of_it() -> None:
    values = [1] * 150 + [0] * 150
    found = compared(accuracy("m", values), accuracy("both", values[::-1]), 2.0)
    assert (found.wins, found.losses, found.margin) == (150, 150, 2.0)
    expected = exact(pairs(150, 150, 300), 2.0)
    assert (found.p_noninferior, found.worst) == expected
    assert (found.detectable, found.rows_needed) == power.of_accuracies(pairs(150, 150, 300))
    assert found.verdict == "undecided"


@pytest.mark.parametrize(
    ("lost", "won", "verdict"),
    [
        (0, 40, "better"),
        (40, 0, "worse"),
        (2, 2, "less than 1 point worse"),
        (0, 0, "less than 1 point worse"),
        (40, 40, "undecided"),
    ],
)
def test_the_verdict_says_what_is_shown(lost: int, won: int, verdict: str) -> None:
    before = [1] * lost + [0] * won + [0, 1] * (500 - (lost + won) // 2)
    after = [0] * lost + [1] * won + [0, 1] * (500 - (lost + won) // 2)
    assert compared(accuracy("m", before), accuracy("both", after)).verdict == verdict


def test_a_loss_may_be_certain_and_small() -> None:
    before = [1] * 12 + [0, 1] * 4994
    found = compared(accuracy("m", before), accuracy("both", [0] * 12 + before[12:]))
    assert found.verdict == "worse, less than 1 point worse"


@pytest.mark.parametrize(
    ("metric", "right", "said"),
    [
        ("exact_match", 19, "1 point is more than half of the 1.9 that m scores"),
        ("exact_match", 0, "1 point is more than half of the 0.0 that m scores"),
        ("exact_match", 20, ""),  # exactly half
    ],
)
def test_what_is_shown_says_little_where_the_margin_is_large(metric, right: int, said: str) -> None:
    values = [1] * right + [0] * (1000 - right)
    found = compared(accuracy("m", values, metric=metric), accuracy("both", values, metric=metric))
    assert found.doubt == said
    little = f", which says little: {said}" if said else ""
    assert f"They show that texts are less than 1 point worse{little}." in found.undecided("texts")


def test_runs_that_are_cut_differently_are_not_shown_to_be_as_good() -> None:
    values = [0, 1] * 500
    found = compared(accuracy("m", values, cut=0), accuracy("both", values, cut=200))
    assert found.p_noninferior < LEVEL and found.verdict == "undecided"


def test_bleu_has_it_from_the_bootstrap_unless_few_rows_differ() -> None:
    texts = [f"the {a} king carries a {b} cow {n}" for n in range(6) for a in "abcde" for b in "xy"]
    worse = [
        text.replace("carries a", "sees the") if at % 3 else text + " so"
        for at, text in enumerate(texts)
    ]
    found = compared(translation("m", worse, texts), translation("both", texts, texts))
    assert found.p_noninferior == pytest.approx(1 / 1001) and 0 < found.worst < found.difference
    assert found.detectable > 0 and found.rows_needed > 0
    few = compared(
        translation("m", worse[:49] + texts[49:], texts), translation("both", texts, texts)
    )
    assert (few.p_noninferior, few.worst, few.detectable, few.rows_needed) == (None,) * 4


def test_lower_scores_that_are_better_are_tested_the_other_way(monkeypatch) -> None:
    lower = Metric("closeness", "TER", higher_is_better=False)
    noise = np.random.default_rng(2).normal(0, 1, 200)
    one = closeness("m", (30 + noise).tolist())
    other = closeness("both", (32 + noise[::-1]).tolist())
    assert compared(one, other).p_noninferior == pytest.approx(1 / 1001)
    monkeypatch.setattr("adafuse.metrics.compare.metric_named", lambda name: lower)
    monkeypatch.setattr("adafuse.metrics.score.metric_named", lambda name: lower)
    found = compared(one, other)
    assert found.p_noninferior == 1 and found.worst > found.difference > 0
    assert found.verdict == "worse"
