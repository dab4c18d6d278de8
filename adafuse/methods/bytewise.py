"""`bytewise`: models agree on the next byte, exactly (Phan et al., arXiv 2410.09303)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from adafuse.engine.program import Program, gather
from adafuse.methods.covers import END, Covers, Probabilities
from adafuse.methods.example import Example
from adafuse.methods.method import Method
from adafuse.methods.options import MethodOptions
from adafuse.methods.strand import Strand
from adafuse.methods.token_rounds import TRACED, Choice, Entry, fuse_tokens, negative_log
from adafuse.text.prefixes import SortedVocabulary
from adafuse.told import told

if TYPE_CHECKING:
    from adafuse.models.devices import Place
    from adafuse.models.language_model import LanguageModel


class BytewiseOptions(MethodOptions):
    """How exact the probabilities are.

    A larger share saves forwards: a model is asked about every prefix of a word that is likely
    enough as a token, not only where its own tokens end.
    """

    prune: Annotated[
        Annotated[float, Field(ge=0, lt=1)],
        told(
            "leave out ways to write the text in tokens that are less probable than this share of"
            " it; a larger share saves forwards"
        ),
    ] = 1e-6


class Bytewise(Method[BytewiseOptions]):
    """Writes the likeliest byte under the weighted mean of the models' next-byte probabilities.

    `Covers` says how these come from tokens, and where they are not quite exact. A round of the
    trace is one byte; NLLs are those of the byte, or of END, which is any special token. The paper
    samples; here the likeliest byte is taken, ties to the lower byte.
    """

    name = "bytewise"
    Options = BytewiseOptions

    def prepare(self, models: Sequence["LanguageModel"], place: "Place") -> None:
        """Sort the vocabularies."""
        self._vocabularies = [SortedVocabulary(m.surfaces, without=m.stop_ids) for m in models]

    def decode(self, example: Example) -> Program[None]:
        """Decode byte by byte."""
        covers: list[Covers] = []

        def choose(strands: Sequence[Strand]) -> Program[Choice]:
            if not covers:
                pairs = zip(strands, self._vocabularies, strict=True)
                covers.extend(Covers(*pair, self.options.prune) for pair in pairs)
            p = yield from gather(each.probabilities() for each in covers)
            mean = np.average(p, axis=0, weights=example.weights)
            best = np.argsort(-mean, kind="stable")[:TRACED].tolist()
            entries = [_entry(symbol, mean, p) for symbol in best if mean[symbol] > 0]
            return Choice(entries, ((),) * len(strands))

        return fuse_tokens(example, choose, keeps_own=False)


def _entry(symbol: int, mean: Probabilities, p: Sequence[Probabilities]) -> Entry:
    ends = symbol == END
    proposers = tuple(number for number, each in enumerate(p) if each.argmax() == symbol)
    nll = tuple(negative_log(each[symbol]) for each in p)
    return Entry(b"" if ends else bytes([symbol]), ends, proposers, nll, negative_log(mean[symbol]))
