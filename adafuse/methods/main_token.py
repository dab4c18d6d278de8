"""The trace of methods in which one model writes and the others have a say."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from adafuse.engine.node import NextToken
from adafuse.methods.token_rounds import Entry
from adafuse.text.first_token import first_token

if TYPE_CHECKING:
    from adafuse.models.language_model import LanguageModel


def main_entry(
    token: int,
    fused: float,
    main: int,
    models: Sequence["LanguageModel"],
    known: Sequence[NextToken],
) -> Entry:
    """Return the entry of a token of model `main`.

    NLL of the main model is that of the token; of another model that of its own token with the
    same bytes, else of the first token that spells them, and for END of all its special tokens
    together. Proposers are the main model and those whose likeliest token it is.
    """
    ends = token in models[main].stop_ids
    surface = b"" if ends else models[main].surfaces.of[token] or b""
    nll, proposers = [], []
    for number, (model, next_token) in enumerate(zip(models, known, strict=True)):
        ids = [token] if number == main else _counterparts(model, surface, ends)
        nll.append(-float(next_token.vector[ids].logsumexp(dim=-1)))
        if number == main or next_token.greedy in ids:
            proposers.append(number)
    return Entry(surface, ends, tuple(proposers), tuple(nll), fused)


def _counterparts(model: "LanguageModel", surface: bytes, ends: bool) -> list[int]:
    if ends:
        return sorted(model.stop_ids)
    token = first_token(model, surface)
    return [] if token is None else [token]
