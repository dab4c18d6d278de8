"""`best_of`: per example the best of the models' own answers, an upper bound for choosing."""

from collections.abc import Sequence

from adafuse.methods.options import MethodOptions
from adafuse.selection.selection import Evidence, Selection


class BestOfOptions(MethodOptions):
    """None."""


class BestOf(Selection[BestOfOptions]):
    """Takes the first model's answer unless another one's scores higher (BLEU: of the sentence)."""

    name = "best_of"
    Options = BestOfOptions
    oracle = True

    def candidates(self, alone: Sequence[str]) -> list[str]:
        """Return the runs of the models alone."""
        return list(alone)

    def choose(
        self,
        models: Sequence[str],
        evidence: Sequence[Evidence],
        candidates: Sequence[Sequence[str]],
    ) -> dict[str, int]:
        """Return for every example the model whose answer has the highest value."""
        numbers = range(len(evidence))
        return {
            row: max(numbers, key=lambda number: evidence[number].values[row])
            for row in evidence[0].values
        }
