"""`fixed_length`: every model always proposes n greedy words (arXiv 2601.06022, figure 2)."""

from typing import Annotated

from adafuse.decoding.fusion import FusionOptions
from adafuse.decoding.method import Method
from adafuse.decoding.options import Positive, told
from adafuse.decoding.round import Example, Proposal, fuse_rounds
from adafuse.decoding.words import WordRules, greedy_words
from adafuse.engine.node import TokenSequence
from adafuse.engine.program import Program


class FixedLengthOptions(FusionOptions):
    """How long a span is."""

    words: Annotated[Positive, told("n, the words of every proposal")] = 1


class FixedLength(Method[FixedLengthOptions]):
    """Every model proposes a span of so many words, all score it, the best is committed.

    Margins are not read; only the end of the text makes a span shorter.
    """

    name = "fixed_length"
    Options = FixedLengthOptions

    def decode(self, example: Example) -> Program[None]:
        """Decode with spans of n words."""
        rules = WordRules(example.stops, self.options.max_word_tokens)

        def propose(sequence: TokenSequence) -> Program[Proposal]:
            return [(yield from greedy_words(sequence, rules, self.options.words))], ()

        return fuse_rounds(example, propose, self.options.rule)
