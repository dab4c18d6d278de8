"""`beam_scaling`: candidates from token-level beam search (arXiv 2601.06022, appendix F)."""

from dataclasses import dataclass
from itertools import islice
from typing import Annotated

from adafuse.decoding.fusion import FusionOptions
from adafuse.decoding.method import Method
from adafuse.decoding.options import Positive, told
from adafuse.decoding.round import Example, Proposal, fuse_rounds
from adafuse.decoding.words import WordRules, add_word, unwritten
from adafuse.engine.node import Node, TokenSequence
from adafuse.engine.program import Program, evaluated, gather


class BeamScalingOptions(FusionOptions):
    """How wide and how long the search is."""

    width: Annotated[Positive, told("beams per model")] = 3
    beam_tokens: Annotated[Positive, told("how many tokens the search runs")] = 5


@dataclass(frozen=True, slots=True)
class Beam:
    """A hypothesis: its ids from the root, their summed log-probability, and where it stands."""

    node: Node
    ids: tuple[int, ...] = ()
    logprob: float = 0.0
    ended: bool = False


class BeamScaling(Method[BeamScalingOptions]):
    """Every model proposes words by beam search, all score them, the best is committed.

    Each beam is cut to its first complete word; a beam without one is finished greedily.
    """

    name = "beam_scaling"
    Options = BeamScalingOptions

    @property
    def top(self) -> int:
        """As many ids as there are beams."""
        return max(2, self.options.width)

    def decode(self, example: Example) -> Program[None]:
        """Decode one word a round, the candidates taken from beam search."""
        rules = WordRules(example.stops, self.options.max_word_tokens)

        def propose(sequence: TokenSequence) -> Program[Proposal]:
            beams = yield from self._search(sequence)
            start = unwritten(sequence)
            spans = yield from gather(add_word(start, rules, beam.ids) for beam in beams)
            return spans, ()

        return fuse_rounds(example, propose, self.options.rule)

    def _search(self, sequence: TokenSequence) -> Program[list[Beam]]:
        """Keep the `width` likeliest hypotheses; equal ones in order of parent, then id."""
        beams = [Beam(sequence.root)]
        for _ in range(self.options.beam_tokens):
            yield from evaluated(beam.node for beam in beams if not beam.ended)
            grown = [longer for beam in beams for longer in self._extensions(beam)]
            beams = sorted(grown, key=lambda beam: -beam.logprob)[: self.options.width]
        return beams

    def _extensions(self, beam: Beam) -> list[Beam]:
        if beam.ended:
            return [beam]
        assert beam.node.next is not None
        likeliest = zip(beam.node.next.top_ids, beam.node.next.top_logprobs, strict=True)
        return [_extend(beam, *token) for token in islice(likeliest, self.options.width)]


def _extend(beam: Beam, token: int, logprob: float) -> Beam:
    ended = token in beam.node.sequence.model.stop_ids
    node = beam.node if ended else beam.node.child(token)
    return Beam(node, (*beam.ids, token), beam.logprob + logprob, ended)
