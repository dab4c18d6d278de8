"""`cool_fusion`: text segments chosen by mean perplexity (arXiv 2407.19807)."""

from typing import Annotated, Literal

from adafuse.engine.node import Sequence
from adafuse.engine.program import Program
from adafuse.methods.example import Example
from adafuse.methods.final_ranking import rank_with, solo_answers
from adafuse.methods.fusion import each
from adafuse.methods.method import Method
from adafuse.methods.options import MethodOptions, WordTokens
from adafuse.methods.perplexity import mean_perplexity
from adafuse.methods.rounds import Proposal, fuse_rounds
from adafuse.methods.segment import shortest_segment
from adafuse.methods.word import Span, greedy_words
from adafuse.text.words import WordRules
from adafuse.told import told


class CoolFusionOptions(MethodOptions):
    """What a segment is, and whether whole answers compete (Cool+R)."""

    segments: Annotated[
        Literal["aligned", "shortest"],
        told(
            "where a segment ends: at a word boundary of all tokenizers (a whitespace word in our"
            " reading), or after as few tokens as make text"
        ),
    ] = "aligned"
    rerank: Annotated[bool, told("rank the models' own answers, too (Cool+R)")] = False
    max_word_tokens: WordTokens = 16


class CoolFusion(Method[CoolFusionOptions]):
    """Each model writes the next segment; the one of the smallest mean perplexity is taken.

    The paper leaves open how END counts: here it is scored like a token.
    """

    name = "cool_fusion"
    Options = CoolFusionOptions

    @property
    def replaces_text(self) -> bool:
        """Cool+R may take another answer than the fused one."""
        return self.options.rerank

    def decode(self, example: Example) -> Program[None]:
        """Decode one segment a round; at the end of Cool+R the best whole answer wins."""
        rules = WordRules(example.stops, self.options.max_word_tokens)
        solo = (yield from solo_answers(example)) if self.options.rerank else []

        def propose(sequence: Sequence) -> Program[Proposal]:
            return Proposal([(yield from self._segment(sequence, rules))])

        yield from fuse_rounds(example, propose, each(mean_perplexity))
        if self.options.rerank:
            rank_with(solo, example, mean_perplexity)

    def _segment(self, sequence: Sequence, rules: WordRules) -> Program[Span]:
        if self.options.segments == "shortest":
            return shortest_segment(sequence, rules)
        return greedy_words(sequence, rules, 1)
