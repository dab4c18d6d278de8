"""The method `mymethod`: one word a round, the one whose highest NLL is the lowest."""

from adafuse.decoding.fusion import per_candidate
from adafuse.decoding.method import Method
from adafuse.decoding.round import Example, Proposal, fuse_rounds
from adafuse.decoding.words import greedy_words
from adafuse.engine.node import Program, TokenSequence
from adafuse.methods.registry import register
from adafuse.options import MethodOptions, WordTokens


class MyOptions(MethodOptions):
    """What users may set."""

    max_word_tokens: WordTokens = 16


@register
class MyMethod(Method[MyOptions]):
    """Every model proposes a word; the least convinced model decides."""

    name = "mymethod"
    Options = MyOptions

    def decode(self, example: Example) -> Program[None]:
        """Decode one word a round."""

        def propose(sequence: TokenSequence) -> Program[Proposal]:
            rules = example.rules(self.options.max_word_tokens)
            return [(yield from greedy_words(sequence, rules, words=1))], ()

        return fuse_rounds(example, propose, per_candidate(lambda span, weights: max(span.nll)))
