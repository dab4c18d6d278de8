"""What a gate learns from rounds whose choices have a worth, and how far it can be trusted."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adafuse.decoding.gate import LearnedRule, model_features, span_features
from adafuse.development.gate_learning import (
    BINS,
    CrossValidation,
    Problem,
    RatedRound,
    Scale,
    learned,
    optimised,
)
from tests.decoding.test_gate import coefficients, numbers, pools


def made_up(count, right):
    """Rounds of two models that propose a span each; `right` says of their margins who is right."""
    random = np.random.default_rng(0)
    cases = []
    for row in range(count):
        margins = random.random(2)
        models = np.array([[m, m, 0.5, 0.5] for m in margins])
        nll = np.array([[0.4, 1.0], [1.0, 0.4]]) + random.random((2, 2)) / 10
        worth = np.array([1.0, 0.0]) if right(*margins) else np.array([0.0, 1.0])
        spans = np.zeros((2, 5))
        cases.append(RatedRound(row, int(nll.mean(axis=1).argmin()), models, spans, nll, worth))
    return cases


def test_a_gate_learns_that_the_surer_model_is_right():
    cases = made_up(200, right=lambda first, second: first > second)
    scale = Scale.of(cases)
    tried = CrossValidation.of(cases, (1.0, 1.0), scale, "reward")
    assert tried.gain(tried.gates[0.03]) > 80  # of some 100 rounds in which the mean is wrong
    _, theta, _ = optimised(Problem.of(cases, (1.0, 1.0), scale), "reward", 0.03)
    assert theta[0] + theta[1] > 0.5


def test_a_gate_learns_that_one_model_is_always_right():
    cases = made_up(100, right=lambda first, second: False)
    problem = Problem.of(cases, (1.0, 1.0), Scale.of(cases))
    for objective in ("reward", "likelihood"):
        bias, _, _ = optimised(problem, objective, 0.03)
        assert bias[1] - bias[0] > 0.5


def test_a_large_penalty_leaves_the_mean():
    cases = made_up(50, right=lambda first, second: first > second)
    parameters = optimised(Problem.of(cases, (1.0, 1.0), Scale.of(cases)), "reward", 1e9)
    assert max(float(p.abs().max()) for p in parameters) < 1e-6


@pytest.mark.parametrize("objective", ["reward", "likelihood"])
def test_the_loss_is_that_of_a_gate_that_draws_its_choices(objective):
    (case,) = made_up(1, right=lambda first, second: True)
    scale = Scale(np.ones(4), np.ones(5))
    bias, theta = torch.tensor([0.3, -0.2]).double(), torch.tensor([0.5, 0.0, -1.0, 0.2]).double()
    loss = Problem.of([case], (1.0, 3.0), scale).loss(
        objective, bias, theta, torch.zeros(5).double()
    )
    logits = case.models @ theta.numpy() + bias.numpy() + np.log([1.0, 3.0])
    weights = np.exp(logits) / np.exp(logits).sum()
    chances = np.exp(-4 * case.nll @ weights)
    chance = chances[0] / chances.sum()
    assert float(loss) == pytest.approx(-chance if objective == "reward" else -math.log(chance))


def test_a_feature_matters_as_far_as_gains_are_lost_without_it():
    cases = made_up(200, right=lambda first, second: first > second)
    for case in cases:
        case.models[:, 1] = 0.5  # the smallest margin: two that say the same would not be missed
    found = learned(cases, (1.0, 1.0), "reward")
    assert found.importance["weights.margin"] > 0.7 * found.gain[found.penalty]
    for idle in ("weights.least_margin", "weights.own_nll", "span.words", "span.ends"):
        assert found.importance[idle] == 0
    assert found.calibration["learned"][-1].right > 0.95


def test_where_nothing_can_be_learned_the_gate_is_the_papers_rule():
    cases = [
        RatedRound(row, 0, np.zeros((2, 4)), np.zeros((2, 5)), np.full((2, 2), 0.5), worth)
        for row, worth in enumerate([np.array([1.0, 0.0])] * 10)
    ]
    found = learned(cases, (1.0, 1.0), "reward")
    assert (found.penalty, found.importance, {*found.calibration}) == (None, {}, {"mean_nll"})
    assert not any([*found.bias, *found.theta, *found.span])
    assert learned([], (1.0, 1.0), "reward").calibration == {}


@given(st.integers(2, 40), st.integers(0, 9))
def test_calibration_counts_each_round_once_and_how_often_the_choice_was_best(count, seed):
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 4, count)  # pools of different sizes, which are padded
    cases = [
        RatedRound(
            row, 0, random.random((2, 4)), random.random((n, 5)), random.random((n, 2)), worth
        )
        for row, n in enumerate(sizes)
        for worth in [random.integers(-2, 1, n).astype(float)]
    ]
    folds = [Problem.of(part, (1.0, 3.0), Scale.of(cases)) for part in (cases[::2], cases[1::2])]
    bins = CrossValidation(folds, {}).calibration([fold.nothing for fold in folds])
    assert len(bins) == min(BINS, count)
    assert max(each.rounds for each in bins) - min(each.rounds for each in bins) <= 1
    assert [each.chance for each in bins] == sorted(each.chance for each in bins)
    chances, right = 0.0, 0
    for case in cases:
        fused = case.nll @ [0.25, 0.75]
        drawn = np.exp(-4 * fused)
        chances += drawn.max() / drawn.sum()
        right += case.worth[fused.argmin()] == case.worth.max()
    assert sum(each.rounds for each in bins) == count
    assert sum(each.rounds * each.right for each in bins) == pytest.approx(right)
    assert sum(each.rounds * each.chance for each in bins) == pytest.approx(chances)


@given(pools(), st.tuples(numbers, numbers), coefficients)
def test_what_is_fitted_is_the_score_that_decodes(pool, bias, rest):
    weights = (1.0, 2.5)
    case = RatedRound(
        0,
        0,
        np.array([model_features(pool, k) for k in (0, 1)]),
        np.array([span_features(candidate, (0, 1)) for candidate in pool]),
        np.array([candidate.nll for candidate in pool]),
        np.ones(len(pool)),
    )
    scale = Scale(np.ones(4), np.ones(5))
    problem = Problem.of([case, replace(case, row=1)], weights, scale)
    fitted = problem.fused(*(torch.tensor(c, dtype=torch.float64) for c in (bias, *rest)))
    scores, _ = LearnedRule(bias, *rest)(pool, weights)
    assert fitted.tolist() == [pytest.approx(scores)] * 2
