"""`single`: greedy decoding of one model under the same stop rules."""

from typing import Annotated

from adafuse.decoding.fusion import each, mean_nll
from adafuse.decoding.method import Method
from adafuse.decoding.options import MethodOptions, Positive, told
from adafuse.decoding.round import Example, Proposal, fuse_rounds
from adafuse.decoding.words import WordRules, add_word, unwritten
from adafuse.engine.node import TokenSequence
from adafuse.engine.program import Program


class SingleOptions(MethodOptions):
    """Nothing here changes the text."""

    max_word_tokens: Annotated[
        Positive,
        told(
            "the most tokens of a word; decides how the trace cuts the text into rounds, nothing"
            " else"
        ),
    ] = 16


class Single(Method[SingleOptions]):
    """A single model, which takes the likeliest token each time.

    A round of the trace is one word. Unlike a fused word, a word is cut at `max_new_tokens`, as
    greedy decoding is.
    """

    name = "single"
    Options = SingleOptions
    models = (1, 1)

    def decode(self, example: Example) -> Program[None]:
        """Decode greedily."""

        def propose(sequence: TokenSequence) -> Program[Proposal]:
            left = example.limits.max_new_tokens - sequence.generated
            rules = WordRules(example.stops, self.options.max_word_tokens, hard_limit=left)
            return [(yield from add_word(unwritten(sequence), rules))], ()

        return fuse_rounds(example, propose, each(mean_nll))
