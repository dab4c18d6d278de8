"""The next-token distribution of a model by a plain forward, and its mass on some bytes."""

import math

import torch


def logprobs(model, prompt, after=()):
    """Log-probabilities after a prompt and the ids `after` it: float32 [vocabulary]."""
    ids = torch.tensor([[*model.prompt_ids(prompt), *after]])
    with torch.no_grad():
        logits = model.network(ids).logits[0, -1]
    return logits[: model.vocabulary].float().log_softmax(-1)


def mass(model, vector, token_bytes):
    """-log of the probability of all ids that stand for one of these bytes; none: of all ends."""
    ids = [index for index, own in enumerate(model.token_bytes.of) if own in token_bytes]
    ids = ids if token_bytes else sorted(model.end_ids)
    total = float(vector[ids].exp().sum()) if ids else 0.0
    return -math.log(total) if total else math.inf
