"""Algorithm 1 (arXiv 2601.06022): the state of one example, and the loop that decodes it."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from adafuse.decoding.candidates import Candidate, Pool
from adafuse.decoding.fusion import PoolFusion
from adafuse.decoding.words import Limits, StopStrings, WordRules
from adafuse.engine.node import ContextFullError, Program, TokenSequence
from adafuse.errors import ExampleError
from adafuse.records import Answer, Chat, Prompt, Round, StopReason


@dataclass(eq=False)
class Example:
    """Y as `text`, each model's ids as a sequence, and the rounds so far.

    `weights` are w_k, `question` is the prompt without few-shot examples, `answers` are what each
    model wrote on its own, if given, `committed` the spans of Y, `out` the numbers of the models
    that have left. `reason` is None while it goes on.
    """

    weights: Sequence[float]
    limits: Limits
    prompt: Prompt = ""
    question: str = ""
    answers: tuple[Answer, ...] | None = None
    index: int = 0
    sequences: list[TokenSequence] = field(default_factory=list)
    text: str = ""
    rounds: list[Round] = field(default_factory=list)
    committed: list[Candidate] = field(default_factory=list)
    out: set[int] = field(default_factory=set)
    reason: StopReason | None = None

    @property
    def stops(self) -> StopStrings:
        return StopStrings(self.limits.stop)

    @property
    def asked(self) -> dict[int, TokenSequence]:
        """The sequences of the models that take part, by number."""
        return {k: sequence for k, sequence in enumerate(self.sequences) if k not in self.out}

    @property
    def begins(self) -> bool:
        """Whether Y is empty after a chat template.

        Some templates end so that an answer begins with a space, others so that it does not.
        """
        prompt, models = self.prompt, [sequence.model for sequence in self.sequences]
        if isinstance(prompt, Chat):
            return not self.rounds and not prompt.continues
        return not self.rounds and any(model.chat for model in models)

    @property
    def stops_after(self) -> StopStrings:
        """The stop strings of what continues Y."""
        return StopStrings(self.limits.stop, self.text)

    def rules(self, max_tokens: int, hard_limit: int | None = None) -> WordRules:
        """Return where words end that continue Y."""
        return WordRules(self.stops_after, max_tokens, hard_limit)

    @property
    def settled(self) -> str:
        """The part of Y that no stop string can cut any more."""
        return self.stops.settled(self.text) if self.reason is None else self.text

    def select(self, pool: Pool, fuse: PoolFusion) -> Candidate:
        """Return the candidate with the smallest F(s) (eq. 6), and record the round.

        Ties go to the earlier candidate. Those that any model gives no finite NLL take no part.
        """
        asked = self.asked
        finite = [s for s in pool.candidates if all(math.isfinite(s.nll[k]) for k in asked)]
        scores = fuse(finite, self.weights) if finite else []
        for candidate, fused in zip(finite, scores, strict=True):
            candidate.fused = fused
        best = min(finite, key=lambda candidate: candidate.fused, default=None)
        self.rounds.append(pool.record(best))
        if best is None:
            names = [
                sequence.model.name
                for number, sequence in asked.items()
                if any(not math.isfinite(candidate.nll[number]) for candidate in pool.candidates)
            ]
            raise ExampleError(f"no candidate has a finite NLL under {' and '.join(names)}")
        return best

    def commit(self, candidate: Candidate) -> None:
        """Append a span to Y (eq. 7), and its ids to those of every model."""
        self.text += candidate.text
        for sequence in self.asked.values():
            sequence.engine.commit(candidate.nodes[sequence])
        candidate.nodes.clear()
        self.committed.append(candidate)

    def check_stop(self, *, ended: bool, tokens: int | None = None) -> None:
        """Stop at a limit, and cut Y at a stop string; `tokens` counts uncommitted ids, too."""
        if tokens is None:
            tokens = max(sequence.generated for sequence in self.sequences)
        rounds = len(self.rounds)
        self.reason = self.limits.stop_reason(self.text, ended=ended, tokens=tokens, rounds=rounds)
        self.text = self.stops.cut(self.text)

    def finish(self, text: str, reason: StopReason) -> None:
        """Make `text` all of Y, cut before the first stop string, and end decoding."""
        self.text = self.stops.cut(text)
        self.reason = reason if self.text == text else "stop"


Proposal = tuple[Iterable[Candidate], tuple[float, ...]]
"""What one model proposes in a round, and the start-of-word margins that it read for it."""

Propose = Callable[[TokenSequence], Program[Proposal]]


def fuse_rounds(example: Example, propose: Propose, fuse: PoolFusion) -> Program[None]:
    """Propose, pool, score, select and commit until the example stops."""
    try:
        while example.reason is None:
            pool = Pool(example.sequences, begins=example.begins, out=example.out)
            for number, sequence in example.asked.items():
                yield from pool.read_by(sequence)
                candidates, margins = yield from propose(sequence)  # sections 3.2, 3.3
                for candidate in candidates:
                    candidate.text = example.stops_after.through(candidate.text)
                pool.add(number, candidates, margins)
            yield from pool.score()  # eq. 4
            best = example.select(pool, fuse)  # eq. 5, 6
            example.commit(best)  # eq. 7
            example.check_stop(ended=best.ends)
    except ContextFullError:
        example.reason = "length"
