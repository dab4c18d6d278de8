"""`deepen`: models meet in the space of their common tokens (DeePEn, arXiv 2404.12715)."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from adafuse.engine.program import Program, gather
from adafuse.methods.example import Example
from adafuse.methods.main_token import main_entry
from adafuse.methods.method import Method
from adafuse.methods.options import MethodOptions, ModelNumber, Positive, check_number
from adafuse.methods.strand import Strand
from adafuse.methods.token_rounds import TRACED, Choice, fuse_tokens
from adafuse.relative.mixture import expected, likeliest, mean
from adafuse.told import told

if TYPE_CHECKING:
    from adafuse.models.devices import Place
    from adafuse.models.language_model import LanguageModel

logger = logging.getLogger(__name__)

_NO_RATE = 1e-6


class DeepenOptions(MethodOptions):
    """Those of the published code, whose default learning rate, 0, leaves the main model alone."""

    main: Annotated[ModelNumber, told("number of the model that writes")] = 0
    learning_rate: Annotated[
        Annotated[float, Field(ge=0, le=100)],
        told("how far the others may move it: a cap, 5 steps move a logit by 4.5 times this"),
    ] = 0.15
    steps: Annotated[Positive, told("steps of the search for its new logits")] = 5
    temperature_factor: Annotated[
        Annotated[float, Field(gt=0, le=10_000)],
        told("factor of a token's similarities to the anchors before their softmax"),
    ] = 100.0
    weight_decay: Annotated[Annotated[float, Field(ge=0, le=1)], told("that of AdamW")] = 0.01
    top: Annotated[
        Positive,
        told("how many of each model's likeliest tokens take part; the published code has all"),
    ] = 512
    reduction: Annotated[
        Literal["mean", "sum"],
        told("of the loss over the anchors; the published code takes the mean"),
    ] = "mean"


class Deepen(Method[DeepenOptions]):
    """The main model writes; its logits are moved until it says what all models say on average.

    The learning rate is a cap: 5 steps of AdamW move a logit by about 4.4963 of it, so a lead of
    the main model above about twice that (1.35 nats for 0.15) stands whatever the others say.

    Anchors are the tokens that all models have, compared and sorted by bytes; `RelativeRows` says
    what they take in memory. The candidates of the trace are tokens of the main model with what the
    search makes of them; `main_entry` says what the NLLs of the models are.
    """

    name = "deepen"
    Options = DeepenOptions

    def check_models(self, count: int) -> None:
        """Refuse a main model that is not there."""
        super().check_models(count)
        check_number("method deepen: main", self.options.main, count)

    def prepare(self, models: Sequence["LanguageModel"], place: "Place") -> None:
        """Find the anchors, and the ids that can neither be written nor end a text."""
        # These import torch, which listing the methods should not wait for.
        from adafuse.relative.rows import relative_rows
        from adafuse.relative.search import InverseSearch

        self._unspeakable = [_unspeakable(model) for model in models]
        o = self.options
        self._search = InverseSearch(o.learning_rate, o.steps, o.weight_decay, o.reduction)
        self._alone = len(models) == 1 or o.learning_rate <= _NO_RATE
        if not self._alone:
            self._rows = relative_rows(models, o.temperature_factor)
            cap = 2 * self._search.reach
            logger.info("deepen cannot overturn a lead of the main model above %.2f nats", cap)

    def decode(self, example: Example) -> Program[None]:
        """Decode token by token of the main model."""
        return fuse_tokens(example, partial(self._choose, example.weights))

    def _choose(self, weights: Sequence[float], strands: Sequence[Strand]) -> Program[Choice]:
        nodes = yield from gather(strand.known() for strand in strands)
        main, known = self.options.main, [node.next for node in nodes if node.next is not None]
        models = [strand.sequence.model for strand in strands]
        heads = [
            likeliest(each.vector, self.options.top, without)
            for each, without in zip(known, self._unspeakable, strict=True)
        ]
        ids, x = heads[main]
        if not self._alone and known[main].greedy not in models[main].stop_ids:
            rows = [make(head[0]) for make, head in zip(self._rows, heads, strict=True)]
            r = [expected(head[1], each) for head, each in zip(heads, rows, strict=True)]
            q = mean(r, weights)
            x, _ = self._search(x, rows[main], q)
        best = x.sort(descending=True, stable=True).indices[:TRACED].tolist()
        fused = (-x.log_softmax(dim=-1)).tolist()
        entries = [main_entry(int(ids[i]), fused[i], main, models, known) for i in best]
        return Choice(entries, ((),) * len(strands))


def _unspeakable(model: "LanguageModel") -> list[int]:
    surfaces = enumerate(model.surfaces.of)
    return [index for index, each in surfaces if not each and index not in model.stop_ids]
