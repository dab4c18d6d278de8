"""`adafuse`: adaptive ensemble decoding (arXiv 2601.06022, Algorithm 1)."""

from typing import Annotated

from pydantic import Field

from adafuse.decoding.fusion import FusionOptions
from adafuse.decoding.method import Method
from adafuse.decoding.options import Positive, told
from adafuse.decoding.round import Example, Proposal, fuse_rounds
from adafuse.decoding.words import WordRules, add_word, unwritten
from adafuse.engine.node import TokenSequence
from adafuse.engine.program import Program, evaluated, gather


class AdaFuseOptions(FusionOptions):
    """The paper sweeps tau from 0 to 1; a margin is 1 at most."""

    tau: Annotated[
        Annotated[float, Field(ge=0, allow_inf_nan=False)],
        told(
            "τ, the margin threshold: a model goes on to another word of a round while p(1) - p(2)"
            " of its next token is at least this, so higher means shorter spans and more decisions"
            " taken together; above 1 no model is ever confident"
        ),
    ] = 0.7
    max_words: Annotated[Positive, told("M, the most words that a model may add in a round")] = 3
    branching: Annotated[
        Positive,
        told(
            "B, how many alternatives a model proposes where it is not confident; 1 switches this"
            " (diversity-aware scaling) off"
        ),
    ] = 1


class AdaFuse(Method[AdaFuseOptions]):
    """Each model proposes words while it is sure, alternatives where not; all choose (3.2, 3.3)."""

    name = "adafuse"
    Options = AdaFuseOptions

    @property
    def top(self) -> int:
        """The B likeliest first tokens, and two for the margin."""
        return max(2, self.options.branching)

    def decode(self, example: Example) -> Program[None]:
        """Decode with the span of every round as long as the confidence of its writer."""
        rules = WordRules(example.stops, self.options.max_word_tokens)

        def propose(sequence: TokenSequence) -> Program[Proposal]:
            return self._propose(sequence, rules)

        return fuse_rounds(example, propose, self.options.rule)

    def _propose(self, sequence: TokenSequence, rules: WordRules) -> Program[Proposal]:
        span = unwritten(sequence)
        margins: list[float] = []
        while True:
            yield from evaluated([span.node])
            assert span.node.next is not None
            margins.append(span.node.next.margin)
            if not margins[-1] >= self.options.tau:
                first_tokens = span.node.next.top_ids[: self.options.branching]
                branches = yield from gather(add_word(span, rules, (z,)) for z in first_tokens)
                return branches, tuple(margins)
            span = yield from add_word(span, rules)
            if span.ends or rules.stops.within(span.text) or span.words == self.options.max_words:
                return [span], tuple(margins)
