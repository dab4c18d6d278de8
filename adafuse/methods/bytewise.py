"""`bytewise`: averaging next-byte probabilities (arXiv 2410.09303)."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from adafuse.decoding.byte_words import END, PRUNE, CoverEncodings, SortedVocabulary
from adafuse.decoding.fusion import WeightingOptions
from adafuse.decoding.method import Method, Models
from adafuse.decoding.round import Example
from adafuse.decoding.token_round import (
    TRACED,
    Choice,
    Entry,
    MeanOptions,
    PendingText,
    Probabilities,
    average,
    fuse_tokens,
)
from adafuse.engine.node import Program, gather


class BytewiseOptions(WeightingOptions, MeanOptions):
    """Which mean is taken, and which tokenizations count."""

    prune: Annotated[float, Field(ge=0, lt=1)] = PRUNE
    """drop tokenizations whose share of the text's probability is below this; larger values save
    forward passes"""


class Bytewise(Method[BytewiseOptions]):
    """Writes the likeliest byte under the weighted mean of the models' next-byte probabilities.

    `CoverEncodings` says how these come from tokens, and where they are not quite exact; no token
    crosses the end of the prompt, so let it end where a token does. A round of
    the trace is one byte; NLLs are those of the byte, or of END, which is any special token. The
    paper samples; here the likeliest byte is taken, ties to the lower byte.
    """

    name = "bytewise"
    Options = BytewiseOptions

    @property
    def reads_distributions(self) -> bool:
        return True

    def prepare(self, models: Models) -> None:
        self._vocabularies = [SortedVocabulary(m.token_bytes, without=m.end_ids) for m in models]

    def decode(self, example: Example) -> Program[None]:
        covers: list[CoverEncodings] = []

        def choose(texts: Sequence[PendingText]) -> Program[Choice]:
            if not covers:
                pairs = zip(texts, self._vocabularies, strict=True)
                covers.extend(CoverEncodings(*pair, self.options.prune) for pair in pairs)
            p = yield from gather(own.probabilities() for own in covers)
            mean = average(np.array(p), np.array(example.weights), self.options.mean)
            best = np.argsort(-mean, kind="stable")[:TRACED].tolist()
            entries = [_entry(symbol, mean, p) for symbol in best if mean[symbol] > 0]
            return Choice(entries, ((),) * len(texts))

        return fuse_tokens(example, choose, keeps_own=False)


def _entry(symbol: int, mean: Probabilities, p: Sequence[Probabilities]) -> Entry:
    surface = b"" if symbol == END else bytes([symbol])
    proposers = (number for number, own in enumerate(p) if own.argmax() == symbol)
    return Entry.of(surface, proposers, [own[symbol] for own in p], mean[symbol])
