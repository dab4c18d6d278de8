import pytest
import torch

from adafuse.methods.deepen.method import likeliest, target
from adafuse.methods.deepen.relative import RelativeRows
from tests.methods.deepen import example as e


def test_expected_relative_representations_of_a_small_pair():
    close(e.LOGITS_A.softmax(-1), [0.3020, 0.3689, 0.2733, 0.0409, 0.0150])
    close(e.LOGITS_B.softmax(-1), [0.7955, 0.0798, 0.0240, 0.0974, 0.0033])
    a, b = e.rows_a(), e.rows_b()
    close(target([e.LOGITS_A], [a], (1.0,)), [0.3020, 0.3589, 0.3391])
    close(target([e.LOGITS_B], [b], (1.0,)), [0.0798, 0.1227, 0.7976])
    close(target([e.LOGITS_A, e.LOGITS_B], [a, b], (2.0, 2.0)), [0.1909, 0.2408, 0.5683])


def close(tensor, values):
    assert tensor.tolist() == pytest.approx(values, abs=5.1e-5)


def test_weights_are_shares():
    logits, rows = [torch.zeros(1)] * 2, list(torch.eye(2, dtype=torch.float64).split(1))
    assert target(logits, rows, (3.0, 1.0)).tolist() == [0.75, 0.25]
    assert target(logits, rows, (2.0, 0.0)).tolist() == [1.0, 0.0]


def test_the_likeliest_ids_come_in_ascending_order_and_ties_go_to_the_lower():
    vector = torch.tensor([-3.0, -1.0, -2.0, -1.0, -2.0, -2.0])
    ids, logprobs = likeliest(vector, 3, torch.arange(6))
    assert ids.tolist() == [1, 2, 3]
    assert logprobs.tolist() == [-1.0, -2.0, -1.0]


def test_ids_left_out_are_shared_out_among_those_that_take_part():
    rows = RelativeRows(torch.eye(3), [0, 1, 2], 100.0)
    ids, logprobs = likeliest(torch.tensor([0.6, 0.2, 0.2]).log(), 2, torch.arange(3))
    close(target([logprobs], [rows(ids)], (1.0,)), [0.75, 0.25, 0.0])


def test_ids_that_cannot_be_written_are_passed_over():
    vector, usable = torch.tensor([0.1, 0.4, 0.3, 0.2]).log(), torch.tensor([0, 2, 3])
    ids, logprobs = likeliest(vector, 2, usable)
    assert ids.tolist() == [2, 3]
    assert logprobs.tolist() == vector[2:].tolist()
    assert likeliest(vector, 9, usable)[0].tolist() == [0, 2, 3]
