"""Algorithm 1: the loop that every method with candidates shares."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adafuse.decoding.candidates import grow_foreign, pool, reading
from adafuse.decoding.example import Example
from adafuse.decoding.fusion import PoolFusion
from adafuse.decoding.words import Span
from adafuse.engine.node import ContextFullError, TokenSequence
from adafuse.engine.program import Program, evaluated


@dataclass(frozen=True, slots=True)
class Proposal:
    """What one model proposes in a round, and the start-of-word margins it read for that."""

    spans: list[Span]
    margins: tuple[float, ...] = ()


Propose = Callable[[TokenSequence], Program[Proposal]]


def fuse_rounds(example: Example, propose: Propose, fuse: PoolFusion) -> Program[None]:
    """Propose, score and commit until the example stops.

    A pool of one entry was written by every model, so its scores are known without a forward.
    Agreement comes first: a model reads what the earlier ones proposed before it writes, in the
    forward that scoring needs anyway, and then spends forwards of its own only from the first
    disagreement on. The proposals are the same as without.
    """
    try:
        while example.reason is None:
            proposals = yield from _in_turn(example.sequences, propose)
            entries = pool(proposal.spans for proposal in proposals)
            yield from grow_foreign(entries, example.sequences)
            example.commit(entries, fuse, tuple(proposal.margins for proposal in proposals))
    except ContextFullError:
        example.reason = "length"


def _in_turn(sequences: Sequence[TokenSequence], propose: Propose) -> Program[list[Proposal]]:
    made: list[Proposal] = []
    for sequence in sequences:
        spans = [span.text for proposal in made for span in proposal.spans]
        yield from evaluated(reading(sequence, spans))
        made.append((yield from propose(sequence)))
    return made
