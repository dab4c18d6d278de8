import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cosine_similarity, normalize

from adafuse.errors import UserError
from adafuse.methods.deepen.relative import RelativeRows, common_tokens, relative_rows
from tests.methods.deepen import example as e
from tests.support.scripted import ScriptedModel


def model(name, tokens, embeddings=None):
    """A member of an ensemble that is only asked for its vocabulary."""
    return ScriptedModel(name, tokens, lambda ids: [], embeddings=embeddings)


def close(tensor, expected):
    assert tensor.flatten().tolist() == pytest.approx(
        torch.tensor(expected).flatten().tolist(), abs=5.1e-5
    )


def test_rows_of_a_small_pair_are_those_of_the_published_matrices():
    close(
        e.rows_a(),
        [[1, 0, 0], [0, 0.9241, 0.0759], [0, 0.0661, 0.9339], [0, 0, 1], [0, 0, 1]],
    )
    close(
        e.rows_b(),
        [[0, 0.0344, 0.9656], [1, 0, 0], [0, 0.0791, 0.9209], [0, 0.9589, 0.0410], [0, 0, 1]],
    )


@given(
    st.lists(st.lists(st.integers(0, 39), min_size=1, max_size=12, unique=True), max_size=8),
    st.integers(1, 20),
)
def test_rows_made_on_demand_are_those_of_the_whole_matrix(requests, kept):
    torch.manual_seed(1)
    embeddings = torch.randn(40, 6)
    embeddings[7] = 0  # padding rows of real models are
    anchors = list(range(0, 40, 3))
    rows = RelativeRows(embeddings, anchors, 10.0, limit=kept * 4 * len(anchors))
    cosines = cosine_similarity(embeddings[:, None], embeddings[anchors][None], dim=-1)
    dense = (10 * normalize(cosines, dim=-1)).softmax(dim=-1)
    for ids in requests:
        assert torch.allclose(rows(torch.tensor(ids)).float(), dense[ids], atol=1e-5)
        assert len(rows._rows) <= kept


def test_the_rows_asked_for_last_are_kept(monkeypatch):
    rows = RelativeRows(torch.eye(6), [0, 1], 1.0, limit=3 * 8)
    made = []
    original = rows._made
    monkeypatch.setattr(rows, "_made", lambda ids: made.extend(ids.tolist()) or original(ids))
    for ids in ([0, 1, 2], [0], [3], [0], [1]):
        rows(torch.tensor(ids))
    assert made == [0, 1, 2, 3, 1]


def test_anchors_are_in_one_order_for_all_models():
    a, b = model("a", e.TOKENS_A, e.EMBEDDINGS_A), model("b", e.TOKENS_B, e.EMBEDDINGS_B)
    assert common_tokens([a, b]) == common_tokens([b, a]) == [b"cat", b"dog", b"the"]
    for rows, the in zip(relative_rows([a, b], 100.0), (0, 1), strict=True):
        close(rows(torch.tensor([the])), [[0, 0, 1]])


def test_models_that_cannot_be_compared_are_refused():
    a, other = model("a", e.TOKENS_A, e.EMBEDDINGS_A), model("b", ["x", "cat", "END"], [[1.0]] * 3)
    with pytest.raises(UserError, match=r"'a' and 'b' have 1 tokens in common, and deepen needs 2"):
        relative_rows([a, other], 100.0)
    with pytest.raises(UserError, match="model 'c' has no input embeddings"):
        relative_rows([a, model("c", e.TOKENS_A)], 100.0)
