"""Two vocabularies with embeddings, and logits behind some text; anchors are the, cat, dog."""

import torch

from adafuse.methods.deepen.relative import RelativeRows

TOKENS_A = ("the", "cat", "dog", "s", "END")
TOKENS_B = ("dog", "the", "ing", "cat", "END")
EMBEDDINGS_A = [[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.2]]
EMBEDDINGS_B = [[0.5, 0.8, 0.1], [1, 0.1, 0], [-0.2, 0.3, 0.9], [0.7, 0.6, 0.2], [-1, 0, 0.1]]
ANCHORS_A = [0, 1, 2]
ANCHORS_B = [1, 3, 0]
LOGITS_A = torch.tensor([1.0, 1.2, 0.9, -1.0, -2.0])
LOGITS_B = torch.tensor([2.5, 0.2, -1.0, 0.4, -3.0])


def rows_a(factor=100.0):
    """The relative rows of all tokens of the first vocabulary."""
    return RelativeRows(torch.tensor(EMBEDDINGS_A), ANCHORS_A, factor)(torch.arange(5))


def rows_b(factor=100.0):
    """Those of the second."""
    return RelativeRows(torch.tensor(EMBEDDINGS_B), ANCHORS_B, factor)(torch.arange(5))
