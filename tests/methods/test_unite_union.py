"""Two vocabularies of five tokens, worked out by hand, k = 2 and equal weights."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adafuse.methods.unite import logits, probabilities, union
from adafuse.tokenization.token_bytes import END, TokenKeys

FIRST = TokenKeys.read([b" Paris", b" Lon", b" Rome", b"don", None], end_ids={4})
SECOND = TokenKeys.read([b" Paris", b" London", b" Lo", b"n", None], end_ids={4})
Z = (torch.tensor([2.0, 1.5, 0.5, -1.0, -2.0]), torch.tensor([1.2, 1.9, 0.3, -0.5, -3.0]))
FOREIGN = ({b" London": 1}.__getitem__, {b" Lon": 2}.__getitem__)
ENTRIES = [b" Paris", b" Lon", b" London"]
PUBLISHED_SHIFT = [
    ("keep", [0.4519, 0.2741, 0.2741], [0.3721, 0.1965, 0.4314], b" London"),
    ("zero", [0.5741, 0.3482, 0.0777], [0.4332, 0.2335, 0.3332], b" Paris"),
    ("exclude", [0.6225, 0.3775, 0.0000], [0.4574, 0.2482, 0.2944], b" Paris"),
]


def top(keys, vector, k):
    return [keys.of[index] for index in vector.argsort(descending=True)[:k].tolist()]


def rows(vectors, duplicates, normalise="union"):
    """p of each model over ENTRIES."""
    return [
        probabilities(
            logits(ENTRIES, keys.ids, first, vector.numpy(), duplicates),
            normalise,
        )
        for keys, first, vector in zip((FIRST, SECOND), FOREIGN, vectors, strict=True)
    ]


def average(values, weights):
    return np.average(values, axis=0, weights=weights).tolist()


def best(values, entries=ENTRIES):
    return entries[values.index(max(values))]


def close(values):
    return pytest.approx(values, abs=5e-5)


@pytest.mark.parametrize(("duplicates", "first", "mean", "pick"), PUBLISHED_SHIFT)
def test_duplicates_by_each_rule(duplicates, first, mean, pick):
    one, other = rows(Z, duplicates)
    assert one == close(first)
    assert other == close([0.2924, 0.1189, 0.5888])
    assert average([one, other], [1.0, 1.0]) == close(mean)
    assert best(average([one, other], [1.0, 1.0])) == pick


def test_probabilities_of_the_whole_vocabulary():
    one, other = rows([z.log_softmax(0) for z in Z], "keep", "vocabulary")
    assert one == close([0.5269, 0.3196, 0.3196])
    assert other == close([0.2764, 0.1124, 0.5566])
    mean = average([one, other], [0.5, 0.5])
    assert mean == close([0.4017, 0.2160, 0.4381])
    assert best(mean) == b" London"


def test_only_logit_0_for_duplicates_depends_on_a_shift():
    shifted = [z - 10 for z in Z]
    for duplicates in ("keep", "exclude"):
        assert rows(shifted, duplicates)[0] == pytest.approx(rows(Z, duplicates)[0], abs=1e-5)
    assert rows(Z, "zero")[0][2] == close(0.0777)
    assert rows(shifted, "zero")[0][2] == close(0.9995)


def test_newlines_of_both_models_meet():
    first = TokenKeys.read([b"\n", b" a", b"n"])
    second = TokenKeys.read([b"n", b"\n", b" a"])
    z = torch.tensor([3.0, 1.0, 0.0]), torch.tensor([1.0, 0.5, 2.0])
    entries = union([top(first, z[0], 2), top(second, z[1], 2)])
    assert sorted(entries) == [b"\n", b" a", b"n"]
    entries = [b"\n", b" a", b"n"]
    found = [
        probabilities(logits(entries, keys.ids, {}.__getitem__, v.numpy(), "exclude"), "union")
        for keys, v in zip((first, second), z, strict=True)
    ]
    assert found[0] == close([0.8438, 0.1142, 0.0420])
    assert found[1] == close([0.1402, 0.6285, 0.2312])
    mean = average(found, [1.0, 1.0])
    assert mean == close([0.4920, 0.3714, 0.1366])
    assert best(mean, entries) == b"\n"


def test_the_union_is_in_order_of_rank_then_of_model():
    ranked = [top(FIRST, Z[0], 2), top(SECOND, Z[1], 2)]
    assert union(ranked) == [b" Paris", b" London", b" Lon"]
    assert union(reversed(ranked)) == [b" London", b" Paris", b" Lon"]
    assert union([[None, b"a"], [b"b", None, b"a"]]) == [b"b", b"a"]


def test_a_token_stands_for_its_own_entry_and_the_first_foreign_one():
    entries, first = [b"ab", b"c", b"a", b"cd", b"x"], {b"ab": 0, b"c": 1, b"cd": 1}.get
    values = logits(entries, {b"a": (0,)}, first, np.array([2.0, 3.0]), "exclude")
    assert values.tolist() == [-math.inf, 3.0, 2.0, -math.inf, -math.inf]


def test_the_likeliest_id_of_an_entry_counts_but_all_ids_of_the_end_together():
    entries = [b"a", b"b", END]
    ids = {b"a": (0, 2), b"b": (1,), END: (3, 4)}
    vector = np.log([0.2, 0.3, 0.1, 0.15, 0.25])
    values = logits(entries, ids, {}.__getitem__, vector, "exclude")
    assert probabilities(values, "vocabulary") == close([0.2, 0.3, 0.4])


@given(st.lists(st.floats(-50, 0), min_size=1, max_size=8), st.floats(-100, 100))
def test_probabilities_over_the_union_are_a_softmax_whatever_is_added(values, shift):
    values = np.array(values)
    found = probabilities(values, "union")
    assert math.fsum(found) == pytest.approx(1)
    assert probabilities(values + shift, "union") == pytest.approx(found)
