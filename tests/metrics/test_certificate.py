"""Certificates: what is chosen, and by simulation that a wrong one is as rare as alpha says."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from adafuse.errors import UserError
from adafuse.metrics import certificate
from adafuse.metrics.certificate import Certificate, certify, decide, in_sequence, step_down
from adafuse.metrics.noninferior import tail
from adafuse.metrics.paired import PairedCounts, holm
from adafuse.metrics.power import certifying_accuracies, certifying_means
from adafuse.metrics.score import ScoredRun

from .conftest import accuracy, translation

MEMBERS = ("m", "l")
ALPHA, DRAWS = 0.05, 600


def right(correct: int, n: int, first: int = 0) -> list[int]:
    """Rows of which `correct` are right, from the one numbered `first` on."""
    return [int(first <= row < first + correct) for row in range(n)]


def chosen(runs: Mapping[str, Sequence[int]], order: str = "preference", **more) -> Certificate:
    """The choice between all runs, the members last."""
    names = [*(name for name in runs if name not in MEMBERS), *MEMBERS]
    scores = [accuracy(name, values) for name, values in runs.items()]
    return certify(names, MEMBERS, scores, order=order, **more)


def test_a_run_that_is_better_than_both_members_is_certified() -> None:
    found = chosen({"m": right(100, 200), "l": right(90, 200, 60), "both": right(160, 200)})
    assert (found.chosen, found.certified, found.exact, found.n) == ("both", True, True, 200)
    both = found.candidates[0]
    assert (both.against, both.difference) == ("m", 30.0)
    assert both.p == tail(PairedCounts(100, 60, 0, 40), -0.01) <= both.level == ALPHA / 2
    assert found.sentence == (
        "both: certified, less than 1 point below the best of m, l (200 rows, alpha 0.05, p 0.0010"
        " at level 0.0250)"
    )


def test_a_certificate_says_little_if_the_margin_is_more_than_half_of_the_best_score() -> None:
    scores = [accuracy(name, right(n, 300)) for name, n in (("m", 5), ("l", 0), ("both", 100))]
    doubt = ", which says little: 1 point is more than half of the 1.7 that m scores"
    assert certify(["both"], MEMBERS, scores).sentence.endswith(f"level 0.0500){doubt}")
    assert "little" not in certify(["both"], MEMBERS, scores, margin=0.5).sentence


def test_the_largest_p_value_of_all_members_counts() -> None:
    runs = {"m": right(100, 200), "l": right(10, 200), "both": right(100, 200, 8)}
    both = chosen(runs).candidates[0]
    assert both.against == "m"
    assert both.p == tail(PairedCounts(92, 8, 8, 92), -0.01)
    assert not both.certified


def test_without_a_certificate_it_is_the_member_that_leads_and_how_many_rows_one_takes() -> None:
    runs = {"m": right(100, 200), "l": right(103, 200, 20), "both": right(99, 200, 30)}
    found = chosen(runs)
    assert (found.chosen, found.certified) == ("l", False)
    needed = [each.rows_needed for each in found.candidates]
    assert found.candidates[0].rows_needed is None  # it is further below than the margin
    near = found.candidates[2]
    assert min(filter(None, needed)) == near.rows_needed
    assert found.sentence == (
        "l, the member that leads: not certified (200 rows, alpha 0.05); l comes nearest, +1.5"
        " points against m: if this is the true difference, a certificate takes some"
        f" {near.rows_needed:,} rows"
    )


def test_the_first_that_is_certified_is_preferred_and_the_boldest_of_a_sequence() -> None:
    members = {"m": right(100, 400), "l": right(80, 400)}
    good, bad = right(200, 400), right(90, 400)
    runs = {**members, "a": bad, "b": good, "c": good}
    assert chosen(runs).chosen == "b"
    assert chosen(runs, "sequence").chosen == "m"  # "a" fails, so that nothing after it is tested
    assert [each.level for each in chosen(runs, "sequence").candidates] == [ALPHA, *[None] * 4]
    scores = [accuracy(name, values) for name, values in runs.items()]
    found = certify(["b", "c", "a"], MEMBERS, scores, order="sequence")
    assert (found.chosen, [each.certified for each in found.candidates]) == (
        "c",
        [True, True, False],
    )


def test_half_of_the_rows_choose_one_run_and_the_others_test_it() -> None:
    members = {"m": right(100, 401), "l": right(80, 401)}
    found = chosen({**members, "a": right(180, 401), "b": right(300, 401)}, "half")
    assert (found.chosen, found.certified, found.n) == ("b", True, 200)
    assert [each.level for each in found.candidates] == [None, ALPHA, None, None]
    assert [each.p for each in found.candidates][::2] == [None, None]
    undecided = chosen({**members, "a": right(106, 401)}, "half", alpha=0.0015)
    tested = next(each for each in undecided.candidates if each.level)
    assert not undecided.certified
    assert tested.rows_needed % 2 == 0  # half of them choose


def test_a_member_is_tested_against_the_others_and_can_be_certified() -> None:
    found = chosen({"m": right(200, 400), "l": right(100, 400), "both": right(90, 400)})
    assert (found.chosen, found.certified) == ("m", True)
    assert found.candidates[1].against == "l"


def test_runs_of_which_limits_cut_more_answers_are_not_certified() -> None:
    scores = [
        accuracy("m", right(100, 200), cut=0),
        accuracy("l", right(90, 200), cut=0),
        accuracy("both", right(180, 200), cut=20),
    ]
    found = certify(["both"], MEMBERS, scores, order="sequence")
    assert (found.chosen, found.certified) == ("m", False)
    others = certify(["both"], MEMBERS[::-1], scores, order="sequence")
    assert others.candidates[0].against == found.candidates[0].against == "m"  # the better one
    assert (found.candidates[0].p, found.candidates[0].rows_needed) == (None, None)
    assert found.sentence.endswith(
        "; nothing was tested: limits cut more answers of one run, or many go beyond max_new_tokens"
    )


def test_bleu_is_certified_by_bootstrap_which_is_said_to_be_approximate() -> None:
    texts = [f"the {a} king carries a {b} cow {n}" for n in range(6) for a in "abcde" for b in "xy"]
    worse = [text.replace("carries a", "sees the") for text in texts]
    scores = [
        translation(name, each, texts)
        for name, each in zip("mlb", (worse, worse, texts), strict=True)
    ]
    found = certify("b", MEMBERS, scores, order="sequence")
    assert (found.chosen, found.certified, found.exact) == ("b", True, False)
    assert "60 rows, alpha 0.05, approximate" in found.sentence
    same = certify("l", MEMBERS, scores, order="sequence")  # no row differs
    assert (same.certified, same.candidates[0].p) == (False, None)
    assert "; nothing was tested: fewer than 50 rows differ, so give more, or" in same.sentence


def test_one_member_one_row_and_other_rows_are_refused() -> None:
    pair = [accuracy("m", [1, 0]), accuracy("l", [1, 0])]
    with pytest.raises(UserError, match="only one member was given"):
        certify("m", "m", pair)
    with pytest.raises(UserError, match="only one row"):
        certify("m", MEMBERS, [accuracy("m", [1]), accuracy("l", [1])])
    with pytest.raises(UserError, match="not scored on the same rows"):
        certify("m", MEMBERS, [pair[0], accuracy("l", [1, 0, 1])])


def test_step_down_is_holm_s_and_with_members_shaffer_s() -> None:
    p_values = [0.03, 0.012, 0.2, 0.016]
    levels = step_down(p_values, [False] * 4, ALPHA)
    assert levels == pytest.approx([ALPHA / 2, ALPHA / 4, ALPHA / 2, ALPHA / 3])
    adjusted = [p <= ALPHA for p in holm(p_values)]
    assert [p <= level for p, level in zip(p_values, levels, strict=True)] == adjusted
    # Of two members one is as good as the best: three hypotheses can be true, then two.
    levels = step_down(p_values, [False, False, True, True], ALPHA)
    assert levels == pytest.approx([ALPHA / 2, ALPHA / 3, ALPHA / 2, ALPHA / 2])
    # Once a member is rejected, the others' hypotheses may all be true.
    levels = step_down([0.001, 0.02, 0.9], [True, False, True], ALPHA)
    assert levels == pytest.approx([ALPHA / 2, ALPHA / 2, ALPHA])


def test_a_sequence_ends_with_the_first_that_fails() -> None:
    assert in_sequence([0.01, 0.06, 0.01], ALPHA) == [ALPHA, ALPHA, None]
    assert in_sequence([0.01, 0.02], ALPHA) == [ALPHA, ALPHA]


Rows = NDArray[np.int64]
"""Right (1) and wrong (0) rows of runs, shape [runs, n]."""


@dataclass(frozen=True)
class World:
    """Runs that are right on rows of some kinds; each kind is drawn with its chance."""

    runs: tuple[str, ...]
    kinds: Rows
    chances: NDArray[np.float64]

    @property
    def scores(self) -> dict[str, float]:
        return dict(zip(self.runs, (100 * self.kinds @ self.chances).tolist(), strict=True))

    def wrong(self, margin: float) -> set[str]:
        """The runs that are below the best member by the margin or more."""
        best = max(self.scores[member] for member in MEMBERS)
        return {run for run, score in self.scores.items() if score <= best - margin + 1e-9}

    def draw(self, random: np.random.Generator, n: int) -> list[ScoredRun]:
        rows = self.kinds[:, random.choice(len(self.chances), n, p=self.chances)]
        return [accuracy(run, values) for run, values in zip(self.runs, rows.tolist(), strict=True)]


def around(best: float, differing: float, differences: Mapping[str, float]) -> World:
    """A member `m` of this score, and runs whose scores differ from its own by so many points.

    They differ from it on a share of the rows, or on as many as they must, independently.
    """
    kinds, chances = np.array([[1, 0]]), np.array([best, 1 - best])
    for points in differences.values():
        share = max(differing, abs(points) / 100)
        gained, lost = (share + points / 100) / 2, (share - points / 100) / 2
        flip = np.where(kinds[0] == 1, lost / best, gained / (1 - best))
        kinds = np.block([[kinds, kinds], [kinds[0], 1 - kinds[0]]])
        chances = np.concatenate([chances * (1 - flip), chances * flip])
    return World(("m", *differences), kinds, chances)


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same counts are tested once."""
    known = cache(lambda *key: tail(PairedCounts(0, *key[:2], key[2] - key[0] - key[1]), key[3]))
    monkeypatch.setattr(certificate, "tail", lambda c, border: known(c.wins, c.losses, c.n, border))


def as_shipped(world: World, order: str, n: int, margin: float, draws: int) -> tuple[float, float]:
    """The share of draws of `n` rows with a certificate, and with one of a run that is worse."""
    random, wrong = np.random.default_rng(44), world.wrong(margin)
    names = [run for run in world.runs if run not in MEMBERS]
    singles = [] if order == "sequence" else MEMBERS
    issued = false = 0
    for _ in range(draws):
        scores = world.draw(random, n)
        found = certify([*names, *singles], MEMBERS, scores, order=order, margin=margin)
        issued += found.certified
        false += found.certified and found.chosen in wrong
    return issued / draws, false / draws


BORDER = {"l": -1.0, "a": -1.0, "b": -1.0, "c": -1.0}
"""All of these are below the best member by exactly the margin of 1 point."""


def at_most_alpha(share: float, draws: int) -> bool:
    """Whether a chance of alpha gives so many in so many draws, or more, once in a hundred."""
    return stats.binomtest(round(share * draws), draws, ALPHA, alternative="greater").pvalue > 0.01


@pytest.mark.usefixtures("cached")
@pytest.mark.parametrize("order", ["preference", "sequence", "half"])
def test_wrong_certificates_are_as_rare_as_alpha_at_the_border(order: str) -> None:
    _, false = as_shipped(around(0.6, 0.1, BORDER), order, 100, 1.0, DRAWS)
    assert at_most_alpha(false, DRAWS)


@cache
def p_value(wins: int, losses: int, n: int, margin: float) -> float:
    return tail(PairedCounts(0, wins, losses, n - wins - losses), -margin / 100)


Rule = Callable[[str, Mapping[str, float], Sequence[str], float], tuple[object, str | None]]


def simulated(
    world: World, order: str, n: int, draws: int, margin: float = 1.0, rule: Rule = decide
) -> dict[str | None, float]:
    """The share of draws of `n` rows by what is certified; counts of kinds are faster than rows."""
    random = np.random.default_rng(45)
    candidates = [run for run in world.runs if run not in MEMBERS]
    candidates += [] if order == "sequence" else MEMBERS
    tested_on = n // 2 if order == "half" else n
    at = dict(zip(world.runs, world.kinds, strict=True))
    counts = random.multinomial(tested_on, world.chances, draws)
    pairs = {
        (run, member): zip(
            (counts @ (at[run] > at[member])).tolist(),
            (counts @ (at[run] < at[member])).tolist(),
            strict=True,
        )
        for run in candidates
        for member in MEMBERS
        if run != member
    }
    choosing = random.multinomial(n - tested_on, world.chances, draws) @ world.kinds.T
    found = Counter[str | None]()
    for rows in choosing.tolist():
        p_values = dict.fromkeys(candidates, 0.0)
        for (run, _), each in pairs.items():
            p_values[run] = max(p_values[run], p_value(*next(each), tested_on, margin))
        if order == "half":
            right = dict(zip(world.runs, rows, strict=True))
            best = max(candidates, key=right.__getitem__)
            p_values = {best: p_values[best]}
        found[rule(order, p_values, MEMBERS, ALPHA)[1]] += 1
    return {run: count / draws for run, count in found.items()}


def errors(found: Mapping[str | None, float], world: World, margin: float = 1.0) -> float:
    """The share of certificates for runs that are below the best member by the margin."""
    return sum(share for run, share in found.items() if run in world.wrong(margin))


MANY = 10_000
FAR = {"l": -5.0, "a": -1.0, "b": -1.0, "c": -1.0}
"""The other member is far below the best one, so that its test adds nothing."""


@pytest.mark.parametrize("differences", [BORDER, FAR], ids=["near", "far"])
@pytest.mark.parametrize("order", ["preference", "sequence", "half"])
def test_of_many_draws_at_the_border_at_most_alpha_are_wrong(order: str, differences) -> None:
    world = around(0.6, 0.1, differences)
    assert at_most_alpha(errors(simulated(world, order, 300, MANY), world), MANY)


def first_below_alpha(order, p_values, members, alpha) -> tuple[None, str | None]:
    """The first that passes on its own, without a correction for going on after failures."""
    return None, next((run for run, p in p_values.items() if p <= alpha), None)


def best_then_tested(order, p_values, members, alpha) -> tuple[None, str | None]:
    """The one that looks best, tested on the rows that it was chosen by."""
    best = min(p_values, key=p_values.__getitem__)
    return None, best if p_values[best] <= alpha else None


@pytest.mark.parametrize("rule", [first_below_alpha, best_then_tested])
def test_without_a_correction_more_than_alpha_would_be_wrong(rule: Rule) -> None:
    """So that the tests above can fail."""
    differences = {"l": -5.0} | dict.fromkeys("abcdefgh", -1.0)
    world = around(0.6, 0.1, differences)
    for order in ("sequence", "preference"):
        assert at_most_alpha(errors(simulated(world, order, 300, 2000), world), 2000)
    assert errors(simulated(world, "sequence", 300, 2000, rule=rule), world) > 2 * ALPHA


def test_the_power_is_about_half_at_a_true_gain_of_two_points() -> None:
    """300 rows, 10 % of which differ, margin 1."""
    issued = simulated(around(0.6, 0.1, {"l": -5.0, "a": 2.0}), "sequence", 300, MANY)
    assert 0.45 < issued["a"] < 0.55


TOY = {
    "toy_qa": {"11111": 25, "01111": 16, "10111": 12, "00000": 4, "01110": 2, "10110": 1},
    "toy_math": {
        **{"11111": 32, "00000": 10, "10111": 9, "01111": 6},
        **{"10001": 1, "10011": 1, "00111": 1},
    },
}
"""How many of 60 test rows `mistral`, `llama`, `adafuse`, `adafuse_b3` and `fixed_1` have right."""


def toy(benchmark: str, members: Sequence[int]) -> World:
    """The toy world's rows, two of whose runs are the members."""
    kinds = TOY[benchmark]
    others = iter("abc")
    runs = tuple(
        MEMBERS[members.index(number)] if number in members else next(others) for number in range(5)
    )
    chances = np.array([*kinds.values()]) / sum(kinds.values())
    return World(runs, np.array([[int(row[run]) for row in kinds] for run in range(5)]), chances)


def toy_errors(benchmark: str, members: Sequence[int], draws: int) -> Iterator[float]:
    """The shares of wrong certificates with margins at which another run is just too bad."""
    world = toy(benchmark, members)
    best = max(world.scores[member] for member in MEMBERS)
    for margin in {round(best - score, 6) for score in world.scores.values() if score < best}:
        for order in ("preference", "sequence", "half"):
            yield errors(simulated(world, order, 100, draws, margin), world, margin)


def test_draws_of_the_toy_world_s_rows_are_wrong_at_most_as_often() -> None:
    assert all(at_most_alpha(share, MANY) for share in toy_errors("toy_math", (0, 1), MANY))


@pytest.mark.soak
@pytest.mark.parametrize("benchmark", TOY)
def test_any_two_runs_of_the_toy_world_as_members_are_so_too(benchmark: str) -> None:
    for members in combinations(range(5), 2):
        assert all(at_most_alpha(share, MANY) for share in toy_errors(benchmark, members, MANY))


def test_choosing_the_member_that_leads_has_an_error_of_its_own() -> None:
    """300 rows, two members 1.5 points apart that differ on 20 % of them."""
    world = around(0.6, 0.2, {"l": -1.5})
    counts = np.random.default_rng(46).multinomial(300, world.chances, MANY)
    right = counts @ world.kinds.T
    wrong = (right[:, 0] < right[:, 1]).mean()
    assert 0.25 < wrong < 0.3
    false = errors(simulated(world, "preference", 300, MANY, 1.5), world, 1.5)
    assert at_most_alpha(false, MANY)


@pytest.mark.parametrize(
    ("differing", "gain", "margin", "level"),
    [(0.1, 0.02, 1, 0.05), (0.4, 0.2, 1, 0.0125), (0.2, 0.03, 2, 0.025)],
)
def test_as_many_rows_as_it_says_give_a_certificate_in_80_of_100_cases(
    differing: float, gain: float, margin: float, level: float
) -> None:
    wins, losses = round(500 * (differing + gain)), round(500 * (differing - gain))
    n = certifying_accuracies(PairedCounts(0, wins, losses, 1000 - wins - losses), margin, level)
    chances = [wins / 1000, losses / 1000, 1 - (wins + losses) / 1000]
    drawn = np.random.default_rng(47).multinomial(n, chances, 250).tolist()
    assert 0.73 < np.mean([p_value(w, lost, n, margin) <= level for w, lost, _ in drawn]) < 0.87


def test_rows_that_nothing_can_certify_and_those_of_means() -> None:
    worse = PairedCounts(0, 5, 15, 980)
    assert certifying_accuracies(worse, 1.0, ALPHA) is None
    assert certifying_accuracies(PairedCounts(0, 9, 5, 986), 1.0, 0.0005) is None
    assert certifying_means(-1.0, 1.0, 100, 100, 1.0, ALPHA) is None
    assert certifying_means(0.0, 1.0, 100, 100, 1.0, 1 / 2000) is None
    assert certifying_means(30.0, 1.0, 400, 200, 1.0, ALPHA) == 100  # of which 50 differ
    n = certifying_means(0.5, 2.0, 400, 400, 1.0, ALPHA)
    error = 2.0 * (400 / n) ** 0.5
    assert stats.norm.sf(1.645 - 1.5 / error) == pytest.approx(0.8, abs=1e-3)
