"""No interval and no mark of rows so few that resampling does not keep its level."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from adafuse.benchmarks.shards import PreparedRow
from adafuse.metrics.compare import Comparison, compare_runs
from adafuse.metrics.intervals import FEWEST_ROWS, RESAMPLES, Estimate
from adafuse.metrics.paired import paired_randomization
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.score import ScoredRun, evaluate
from adafuse.metrics.scorer import Judgement, Metric, Outcome, Prediction, Scorer

from .conftest import scored, translation

WORDS = ["the", "a", "young", "old", "king", "carries", "sings", "cow", ",", ".", "on", "Monday"]


def row(name: str, answer: str) -> PreparedRow:
    return PreparedRow(name, "?", "?", (answer,))


RUNS = {"m": ("single", ["m"]), "both": ("adafuse", ["m", "l"])}


def noisy(draw: np.random.Generator, texts: Sequence[str]) -> list[str]:
    """The texts, of which one word in four is another."""
    return [
        " ".join(draw.choice(WORDS) if draw.random() < 0.25 else word for word in text.split())
        for text in texts
    ]


def corpus(draw: np.random.Generator, n: int) -> list[str]:
    return [" ".join(draw.choice(WORDS, draw.integers(4, 14))) for _ in range(n)]


def means(run: str, values: Sequence[float]) -> ScoredRun:
    outcomes = [Outcome(f"r{n}", "x", ("x",), float(value)) for n, value in enumerate(values)]
    return scored(run, outcomes, "closeness", float(np.mean(values)))


def compared(one: ScoredRun, other: ScoredRun) -> Comparison:
    return compare_runs(RUNS, [one, other])[0]


@pytest.mark.parametrize("n", [1, 2, 8, FEWEST_ROWS - 1])
def test_of_few_rows_nothing_but_shares_has_an_interval(n: int) -> None:
    rows = [row(str(at), f"the old king sings {at}") for at in range(n)]
    texts = [{"id": str(at), "text": f"the king sings {at}"} for at in range(n)]
    for name in ("squad", "translation_13a"):
        for protocol in ("strict", "published"):
            found = evaluate(rows, texts, name, protocol, benchmark="b", run="r").score
            ends = {metric: estimate.ends() for metric, estimate in found.metrics.items()}
            assert ends.pop("exact_match", "has one") and not any(ends.values())


@pytest.mark.parametrize("n", [1, 2, 8, FEWEST_ROWS - 1])
def test_no_difference_of_few_rows_is_marked_however_large(n: int) -> None:
    texts = corpus(np.random.default_rng(0), n)
    wrong = ["nothing of it"] * n
    bleu = compared(translation("m", wrong, texts), translation("both", texts, texts))
    mean = compared(means("m", [0.1] * n), means("both", np.linspace(0.8, 0.9, n).tolist()))
    for found in (bleu, mean):
        assert found.difference > 0 and not found.significant
        assert (found.low, found.high) == (None, None)


def test_enough_rows_have_an_interval_and_a_mark() -> None:
    draw = np.random.default_rng(1)
    texts = corpus(draw, FEWEST_ROWS)
    better = compared(
        translation("m", noisy(draw, texts), texts), translation("both", texts, texts)
    )
    assert better.significant and better.low is not None


def test_rows_that_published_drops_do_not_count_as_rows() -> None:
    rows = [row(str(at), f"the old king sings {at}") for at in range(FEWEST_ROWS)]
    texts = [{"id": str(at), "text": f"the king sings {at}" * (at < 9)} for at in range(len(rows))]
    named = {"benchmark": "b", "run": "r"}
    assert not evaluate(rows, texts, "translation_13a", "published", **named).score.main.ends()
    assert evaluate(rows, texts, "translation_13a", "strict", **named).score.main.ends()


def test_excluded_rows_do_not_count_as_rows() -> None:
    rows = [row(str(at), f"the king sings {at}") for at in range(FEWEST_ROWS)]
    texts = [{"id": str(at), "text": f"the {at}"} for at in range(FEWEST_ROWS)]
    named = {"benchmark": "b", "run": "r"}
    assert evaluate(rows, texts, "squad", **named, exclude=["0"]).score.metrics["f1"].low is None


@pytest.mark.parametrize("value", [0.0, 70.7, 100.0])
def test_an_interval_without_width_is_none(value: float) -> None:
    assert Estimate(value, value, value) == Estimate(value)
    assert Estimate(value, value, value).ends() == ""


def test_ends_that_print_alike_get_more_digits() -> None:
    assert Estimate(70.7, 70.68, 70.72).ends() == "70.68 to 70.72"
    assert Estimate(70.7, 60.0, 80.0).ends(form=" [{}, {}]", sign="+") == " [+60.0, +80.0]"


@pytest.mark.parametrize(("n", "kept"), [(FEWEST_ROWS - 1, False), (FEWEST_ROWS, True)])
def test_the_intervals_of_a_scorer_of_somebody_else_follow_the_same_rule(
    n: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rules(examples: Sequence[Prediction]) -> Judgement:
        outcomes = tuple(Outcome(e.id, e.text, e.answers, 70.7) for e in examples)
        return Judgement(outcomes, {"ter": Estimate(70.7, 60.0, 80.0)})

    scorer = Scorer("ter", "", (Metric("ter", "TER", higher_is_better=False),), rules)
    monkeypatch.setitem(SCORERS, "ter", scorer)
    rows = [row(str(at), "x") for at in range(n)]
    found = evaluate(rows, [], "ter", benchmark="b", run="r").score
    assert (found.main.low is not None) == kept


def test_randomization_counts_the_swaps_that_reach_the_difference() -> None:
    first, second = np.array([3.0, 1.0, 4.0]), np.array([1.0, 1.5, 0.0])
    signs = np.array(list(product([1, -1], repeat=3)))
    exact = np.mean(np.abs(signs @ (first - second)) >= abs((first - second).sum()) - 1e-9)
    found = paired_randomization(first, second, lambda rows: float(rows.mean()))
    assert found == pytest.approx(exact, abs=0.05)
    assert paired_randomization(first[:1], second[:1], lambda rows: float(rows.mean())) == 1


def test_few_rows_that_differ_among_many_that_do_not_are_no_mark() -> None:
    """Four of 400, all in favour: by chance one time in eight."""
    other = [0.5] * 400
    found = compared(means("m", other), means("both", [0.9] * 4 + other[4:]))
    assert found.low is not None and found.low > 0
    assert found.p > 0.1 and not found.significant


def _covered(n: int, trials: int = 2000) -> float:
    """How often the bootstrap's interval of a mean of F1-like values holds the true mean."""
    draw = np.random.default_rng(5)
    values, shares = np.array([0.0, 0.4, 0.8, 1.0]), [0.5, 0.1, 0.1, 0.3]
    found = 0
    for _ in range(trials):
        sample = draw.choice(values, n, p=shares)
        resampled = sample[draw.integers(0, n, (400, n))].mean(axis=1)
        low, high = np.quantile(resampled, (0.025, 0.975))
        found += low <= values @ shares <= high
    return found / trials


def test_the_intervals_cover_what_they_say_from_that_many_rows_on() -> None:
    assert _covered(8) < 0.92
    assert _covered(FEWEST_ROWS) >= 0.93


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["bleu", "mean"])
def test_marks_of_equal_runs_are_at_most_as_many_as_their_level(kind: str) -> None:
    draw, marked, trials = np.random.default_rng(7), 0, 400
    for _ in range(trials):
        texts = corpus(draw, FEWEST_ROWS)
        if kind == "bleu":
            pair = [translation(run, noisy(draw, texts), texts) for run in RUNS]
        else:
            pair = [means(run, draw.exponential(size=FEWEST_ROWS).tolist()) for run in RUNS]
        marked += compared(*pair).significant
    sampling_error = 2 * (0.05 * 0.95 / trials) ** 0.5
    assert marked / trials <= 0.05 + sampling_error, marked / trials + 1 / RESAMPLES
