"""The inverse search against figures of the published processor, rounded to four decimals."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adafuse.methods.deepen.method import target
from adafuse.methods.deepen.relative import InverseSearch, RelativeRows
from tests.methods.deepen import example as e


def target_and_rows(factor=100.0):
    """q of the small pair with equal weights, and the main model's rows."""
    a, b = e.rows_a(factor), e.rows_b(factor)
    return target([e.LOGITS_A, e.LOGITS_B], [a, b], (1.0, 1.0)), a


def close(tensor, expected, digits=4):
    assert tensor.tolist() == pytest.approx(expected, abs=0.51 * 10**-digits)


def test_five_steps_on_a_small_pair():
    q, rows = target_and_rows()
    x, losses = InverseSearch(0.15)(e.LOGITS_A, rows, q)
    assert losses == pytest.approx([0.036604, 0.018756, 0.007010, 0.001289, 0.000019], abs=1e-6)
    close(x, [0.3911, 0.5799, 1.5003, -0.3847, -1.3778])
    close(x.softmax(-1), [0.1703, 0.2057, 0.5165, 0.0784, 0.0290])
    assert x.argmax() == 2 and e.LOGITS_A.argmax() == 1


def test_a_small_temperature_factor_blurs_the_anchors():
    q, rows = target_and_rows(5.0)
    close(q, [0.2307, 0.3791, 0.3902])
    x, _ = InverseSearch(0.15)(e.LOGITS_A, rows, q)
    close(x.softmax(-1), [0.1258, 0.4506, 0.3501, 0.0537, 0.0199])


def test_weight_decay_shrinks_all_logits_a_little():
    q, rows = target_and_rows()
    x, _ = InverseSearch(0.15, weight_decay=0.0)(e.LOGITS_A, rows, q)
    close(x, [0.3960, 0.5858, 1.5085, -0.3897, -1.3897])


def optimized(optimizer, steps, **settings):
    """Logits of the small pair after steps of another optimizer."""
    q, rows = target_and_rows()
    x = e.LOGITS_A.double().requires_grad_()
    taken = optimizer([x], **settings)
    for _ in range(steps):
        taken.zero_grad()
        InverseSearch(0.15).loss(x, rows, q).backward()
        taken.step()
    return x.detach()


def test_plain_gradient_steps_of_that_size_change_nothing():
    assert optimized(torch.optim.SGD, 5, lr=0.15).argmax() == 1


def test_the_converged_search_says_what_all_models_say():
    q, rows = target_and_rows()
    p = optimized(torch.optim.Adam, 1000, lr=0.035).softmax(-1)
    assert torch.allclose(p @ rows, q, atol=1e-6)
    close(p, [0.1909, 0.2259, 0.4849, 0.0719, 0.0264])


def test_reductions_differ_by_the_number_of_anchors():
    q, rows = target_and_rows()
    mean, total = (
        InverseSearch(0.15, reduction=r).loss(e.LOGITS_A.double(), rows, q) for r in ("mean", "sum")
    )
    assert float(total) == pytest.approx(3 * float(mean))


def test_logits_shifted_by_a_constant_give_the_same_probabilities():
    q, rows = target_and_rows()
    search = InverseSearch(0.15)
    shifted, _ = search(e.LOGITS_A.log_softmax(-1), rows, q)
    close(shifted.softmax(-1), search(e.LOGITS_A, rows, q)[0].softmax(-1).tolist(), digits=5)


def test_an_anchor_that_no_token_reaches_leaves_everything_finite():
    rows = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    for q in (torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.2, 0.2, 0.6])):
        x, losses = InverseSearch(0.15)(torch.tensor([1.0, 0.0]), rows, q)
        assert torch.isfinite(x).all() and torch.isfinite(torch.tensor(losses)).all()


def test_the_reach_is_the_sum_of_the_learning_rates():
    assert InverseSearch(1.0).reach == pytest.approx(4.4963, abs=5e-5)
    assert 2 * InverseSearch(0.15).reach == pytest.approx(1.35, abs=5e-3)


@pytest.mark.parametrize(
    ("rate", "lead", "flips"),
    [
        (0.15, 1.3, True),
        (0.15, 1.4, False),
        (0.05, 0.5, False),
        (0.3, 2.6, True),
        (0.3, 2.8, False),
    ],
)
def test_the_learning_rate_caps_the_lead_that_can_be_overturned(rate, lead, flips):
    rows = torch.eye(2)
    logits = torch.tensor([lead, 0.0])
    q = (logits.softmax(-1) + torch.tensor([0.0, 1.0])) / 2
    x, _ = InverseSearch(rate)(logits, rows, q)
    assert (int(x.argmax()) == 1) == flips


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 1.0), st.integers(1, 10))
def test_no_logit_moves_further_than_its_reach(seed, rate, steps):
    torch.manual_seed(seed)
    rows = (3 * torch.randn(7, 5)).softmax(-1)
    logits, q = 2 * torch.randn(7), torch.randn(5).softmax(-1)
    search = InverseSearch(rate, steps, weight_decay=0.0)
    x, _ = search(logits, rows, q)
    assert float((x - logits).abs().max()) <= 1.05 * search.reach  # of ten steps; 1.01 of five


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_what_all_agree_on_is_left_alone(reduction):
    torch.manual_seed(3)
    rows = RelativeRows(torch.randn(50, 8), list(range(40)), 1.0)
    ids, logits = torch.arange(50), torch.randn(50)
    search = InverseSearch(0.15, reduction=reduction)
    x, losses = search(logits, rows(ids), target([logits], [rows(ids)], (1.0,)))
    assert torch.equal(x.float(), logits) and len(losses) == 1
