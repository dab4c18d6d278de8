"""The state of one example while it is decoded (arXiv 2601.06022, section 3.1)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from adafuse.decoding.candidates import Entry, span_score
from adafuse.decoding.fusion import PoolFusion, Scored, SpanScore, length_in_words
from adafuse.decoding.limits import Limits, StopStrings
from adafuse.engine.node import TokenSequence
from adafuse.errors import ExampleError
from adafuse.records import Answer, Candidate, Prompt, Round, StopReason

Margins = tuple[tuple[float, ...], ...]


@dataclass
class Example:
    """Y as `text`, each model's ids as a sequence, and the rounds so far.

    `reason` is None while decoding goes on; `weights` are w_k, one per sequence. `task` is
    the prompt without worked examples, `answers` what each model wrote on its own, where that is
    known already. `committed` holds what each model
    says of each committed span.
    """

    weights: Sequence[float]
    limits: Limits
    prompt: Prompt = ""
    task: str = ""
    answers: tuple[Answer, ...] | None = None
    sequences: list[TokenSequence] = field(default_factory=list)
    text: str = ""
    rounds: list[Round] = field(default_factory=list)
    committed: list[tuple[SpanScore, ...]] = field(default_factory=list)
    reason: StopReason | None = None

    @property
    def stops(self) -> StopStrings:
        """The stop strings of the task."""
        return StopStrings(self.limits.stop)

    @property
    def settled(self) -> str:
        """The part of Y that no stop string can cut any more."""
        return self.stops.settled(self.text) if self.reason is None else self.text

    def commit(self, entries: Sequence[Entry], fuse: PoolFusion, margins: Margins) -> None:
        """Score the pool, commit the candidate with the smallest F(s) (eq. 6, 7), and record it."""
        chosen = entries[self.judge(entries, fuse, margins)]
        self.take(chosen)
        longest = max(sequence.generated for sequence in self.sequences)
        self.append(chosen.text, chosen.ends, longest)

    def judge(self, entries: Sequence[Entry], fuse: PoolFusion, margins: Margins) -> int:
        """Score the pool, record the round, and return the candidate with the smallest F(s).

        Ties go to the earlier entry; a candidate that some model gives no finite NLL is out.

        Raises:
            ExampleError: all are.
        """
        candidates = self._candidates(entries, fuse)
        selected = best(candidates)
        words = 0 if selected is None else len(candidates[selected].text.split())
        self.rounds.append(Round(tuple(candidates), selected, words, margins))
        if selected is None:
            raise ExampleError(self._no_finite(candidates))
        return selected

    def take(self, entry: Entry) -> None:
        """Make the ids of a candidate part of every model's prefix."""
        self.committed.append(self._scored(entry).scores)
        for number, sequence in enumerate(self.sequences):
            sequence.engine.commit(entry.nodes[number])

    def append(self, text: str, ends: bool, longest: int) -> None:
        """Add what a round committed to Y, and find out whether decoding stops there.

        Args:
            text: the span.
            ends: END was chosen.
            longest: the most generated ids that some model holds.
        """
        self.text += text
        self.reason = self.limits.stop_reason(
            self.text, ended=ends, tokens=longest, rounds=len(self.rounds)
        )
        self.text = self.stops.cut(self.text)

    def finish(self, text: str, reason: StopReason) -> None:
        """Make `text` all of Y, cut before the first stop string, and end decoding."""
        self.text = self.stops.cut(text)
        self.reason = reason if self.text == text else "stop"

    def _candidates(self, entries: Sequence[Entry], fuse: PoolFusion) -> list[Candidate]:
        """Score all entries; those with a finite NLL under every model are fused."""
        pool = [self._scored(entry) for entry in entries]
        finite = [number for number, scored in enumerate(pool) if _is_finite(scored)]
        values = fuse([pool[number] for number in finite], self.weights) if finite else []
        fused = dict(zip(finite, values, strict=True))
        return [
            Candidate(
                entry.text,
                entry.ends,
                scored.proposers,
                tuple(score.nll for score in scored.scores),
                fused.get(number, math.inf),
            )
            for number, (entry, scored) in enumerate(zip(entries, pool, strict=True))
        ]

    def _scored(self, entry: Entry) -> Scored:
        scores = tuple(span_score(entry, number) for number in range(len(self.sequences)))
        return Scored(scores, length_in_words(entry.text, entry.ends), tuple(entry.proposers))

    def _no_finite(self, candidates: Sequence[Candidate]) -> str:
        names = [
            sequence.model.name
            for number, sequence in enumerate(self.sequences)
            if any(not math.isfinite(candidate.nll[number]) for candidate in candidates)
        ]
        return f"no candidate has a finite NLL under {' and '.join(names)}"


def best(candidates: Sequence[Candidate]) -> int | None:
    """Return the candidate with the smallest F(s), the first of equal ones; None if all are out."""
    finite = [n for n, c in enumerate(candidates) if all(map(math.isfinite, c.nll))]
    return min(finite, key=lambda number: candidates[number].fused, default=None)


def _is_finite(scored: Scored) -> bool:
    return all(math.isfinite(score.nll) for score in scored.scores)
