"""`sweetspan`: spans of a fixed number of words, chosen by filtered perplexity (2409.18583)."""

from typing import Annotated

from pydantic import Field

from adafuse.decoding.fusion import filtered_perplexity, mean_perplexity, per_candidate
from adafuse.decoding.method import Method
from adafuse.decoding.round import Example, Proposal, fuse_rounds
from adafuse.decoding.words import greedy_words
from adafuse.engine.node import Program, TokenSequence
from adafuse.options import MethodOptions, Positive, WordTokens


class SweetSpanOptions(MethodOptions):
    """The length of a span, and which scores of it count."""

    words: Positive = 4
    """words of a span"""
    filter_ratio: Annotated[float, Field(ge=1)] | None = 10.0
    """if a span's largest perplexity is more than this times its smallest, both are dropped; null:
    never"""
    max_word_tokens: WordTokens = 16


class SweetSpan(Method[SweetSpanOptions]):
    """Every model proposes a span, all score it by perplexity, the lowest mean is committed.

    Spans are greedy, and unfaithful scores are left out. The paper (arXiv 2409.18583) has no
    published code: the length of four words, the filter and that END is scored like a token are our
    reading. With two models the filter leaves the more optimistic one.
    """

    name = "sweetspan"
    Options = SweetSpanOptions

    def decode(self, example: Example) -> Program[None]:
        ratio = self.options.filter_ratio
        fuse = mean_perplexity if ratio is None else filtered_perplexity(ratio)

        def propose(sequence: TokenSequence) -> Program[Proposal]:
            rules = example.rules(self.options.max_word_tokens)
            return [(yield from greedy_words(sequence, rules, self.options.words))], ()

        return fuse_rounds(example, propose, per_candidate(fuse))
