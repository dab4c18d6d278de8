"""`deepen`: the logits of one model moved towards what all say (DeePEn, arXiv 2404.12715)."""

import logging
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from adafuse.decoding.fusion import WeightingOptions
from adafuse.decoding.method import Method, Models
from adafuse.decoding.round import Example
from adafuse.decoding.token_round import TRACED, Choice, Entry, PendingText, fuse_tokens
from adafuse.engine.node import NextToken, Program, gather
from adafuse.options import ModelNumber, Positive
from adafuse.tokenization.text import ModelTokenizer, first_token

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)


def likeliest(
    logprobs: "torch.Tensor", count: int, ids: "torch.Tensor"
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Return the `count` likeliest of ascending `ids`, and their log-probabilities."""
    order = logprobs[ids].sort(descending=True, stable=True).indices
    best = ids[order[:count]].sort().values
    return best, logprobs[best]


def target(
    logits: Sequence["torch.Tensor"], rows: Sequence["torch.Tensor"], weights: Sequence[float]
) -> "torch.Tensor":
    """Return q = sum_m w_m p_m R_m / sum_m w_m, float64 [anchors], for p_m = softmax(logits)."""
    q = rows[0].new_zeros(rows[0].shape[1])
    for x, of_ids, weight in zip(logits, rows, weights, strict=True):
        r = x.double().softmax(dim=-1).to(of_ids.device) @ of_ids
        q += r.to(q.device) * (weight / math.fsum(weights))
    return q


class DeepenOptions(WeightingOptions):
    """As in the published code, whose default learning rate, 0, leaves the main model unchanged."""

    main: ModelNumber = 0
    """number of the main model"""
    learning_rate: Annotated[float, Field(ge=0, le=100)] = 0.15
    """learning rate of the search for the main model's logits; 5 steps move a logit by at most 4.5
    times this value"""
    steps: Positive = 5
    """steps of that search"""
    temperature_factor: Annotated[float, Field(gt=0, le=10_000)] = 100.0
    """factor of a token's similarities to the anchors before their softmax"""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.01
    """weight decay of AdamW"""
    top: Positive = 512
    """number of each model's likeliest tokens that take part; the published code takes all"""
    reduction: Literal["mean", "sum"] = "mean"
    """reduction of the loss over the anchors; `mean` in the published code"""


class Deepen(Method[DeepenOptions]):
    """The main model writes; its logits are moved until it says what all models say on average.

    The learning rate is a cap: 5 steps of AdamW move a logit by about 4.4963 of it, so a lead of
    the main model above about twice that (1.35 nats for 0.15) stands whatever the others say.
    Anchors are the tokens that all models have, compared by their bytes.
    """

    name = "deepen"
    Options = DeepenOptions

    @property
    def reads_distributions(self) -> bool:
        return True

    def prepare(self, models: Models) -> None:
        import torch

        from adafuse.methods.deepen.relative import InverseSearch, relative_rows
        from adafuse.models.language_model import loaded

        self._models = models
        # An id without bytes can neither be written nor, unless it is special, end a text.
        self._ids = [
            torch.tensor([i for i, own in enumerate(m.token_bytes.of) if own or i in m.end_ids])
            for m in models
        ]
        o = self.options
        self._search = InverseSearch(o.learning_rate, o.steps, o.weight_decay, o.reduction)
        self._main_only = len(models) == 1 or o.learning_rate <= 1e-6
        if not self._main_only:
            self._rows = relative_rows(loaded(models, self.name), o.temperature_factor)
            cap = 2 * self._search.reach
            logger.info("deepen cannot overturn a lead of the main model above %.2f nats", cap)

    def decode(self, example: Example) -> Program[None]:
        return fuse_tokens(example, partial(self._choose, example.weights))

    def _choose(self, weights: Sequence[float], texts: Sequence[PendingText]) -> Program[Choice]:
        nexts = yield from gather(pending.next_token() for pending in texts)
        main = self.options.main
        heads = [
            likeliest(after.logprobs, self.options.top, usable.to(after.logprobs.device))
            for after, usable in zip(nexts, self._ids, strict=True)
        ]
        ids, x = heads[main]
        if not self._main_only and nexts[main].greedy not in self._models[main].end_ids:
            rows = [make(head) for make, (head, _) in zip(self._rows, heads, strict=True)]
            q = target([logprobs for _, logprobs in heads], rows, weights)
            x, _ = self._search(x, rows[main], q)
        best = x.sort(descending=True, stable=True).indices[:TRACED].tolist()
        fused = (-x.log_softmax(dim=-1)).tolist()
        entries = [self._entry(int(ids[i]), fused[i], nexts) for i in best]
        return Choice(entries, ((),) * len(texts))

    def _entry(self, token: int, fused: float, nexts: Sequence[NextToken]) -> Entry:
        """Return the entry of a token of the main model.

        Its NLL under another model is that of the token with the same bytes, else of the first one
        that spells them; for END of all special tokens together.
        """
        main, writer = self.options.main, self._models[self.options.main]
        surface = b"" if token in writer.end_ids else writer.token_bytes.of[token] or b""
        nll, proposers = [], []
        for number, (model, after) in enumerate(zip(self._models, nexts, strict=True)):
            ids = [token] if number == main else _counterparts(model, surface)
            nll.append(-float(after.logprobs[ids].logsumexp(dim=-1)))
            if number == main or after.greedy in ids:
                proposers.append(number)
        return Entry(surface, tuple(proposers), tuple(nll), fused)


def _counterparts(model: ModelTokenizer, surface: bytes) -> list[int]:
    if not surface:
        return sorted(model.end_ids)
    token = first_token(model, surface)
    return [] if token is None else [token]
