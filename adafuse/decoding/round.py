"""Algorithm 1 (arXiv 2601.06022): the loop that every method with candidates shares."""

from collections.abc import Callable, Iterable

from adafuse.decoding.candidates import Candidate, Pool
from adafuse.decoding.example import Example
from adafuse.decoding.fusion import PoolFusion
from adafuse.engine.node import ContextFullError, TokenSequence
from adafuse.engine.program import Program

Proposal = tuple[Iterable[Candidate], tuple[float, ...]]
"""What one model proposes in a round, and the start-of-word margins that it read for that."""

Propose = Callable[[TokenSequence], Program[Proposal]]


def fuse_rounds(example: Example, propose: Propose, fuse: PoolFusion) -> Program[None]:
    """Propose, pool, score, select and commit until the example stops."""
    try:
        while example.reason is None:
            pool = Pool(example.sequences)
            for number, sequence in enumerate(example.sequences):
                yield from pool.read_by(sequence)
                candidates, margins = yield from propose(sequence)  # sections 3.2, 3.3
                pool.add(number, candidates, margins)
            yield from pool.score()  # eq. 4
            best = example.select(pool, fuse)  # eq. 5, 6
            example.commit(best)  # eq. 7
            example.check_stop(ended=best.ends)
    except ContextFullError:
        example.reason = "length"
