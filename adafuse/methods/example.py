"""The state of one example while it is decoded (adafuse.md, "State")."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from adafuse.engine.node import Sequence as TokenSequence
from adafuse.methods.fusion import FusionFunction, length_in_words
from adafuse.methods.limits import Limits
from adafuse.methods.pool import Entry, span_score
from adafuse.records import Answer, Candidate, Round, StopReason
from adafuse.text.stops import StopStrings

Margins = tuple[tuple[float, ...], ...]


@dataclass
class Example:
    """Y as `text`, each model's ids as a sequence, and the rounds so far.

    `reason` is None while decoding goes on; `weights` are w_k, one per sequence. `answers` are
    what each model wrote on its own, where that is known already.
    """

    weights: Sequence[float]
    limits: Limits
    prompt: str = ""
    answers: tuple[Answer, ...] | None = None
    sequences: list[TokenSequence] = field(default_factory=list)
    text: str = ""
    rounds: list[Round] = field(default_factory=list)
    reason: StopReason | None = None
    error: str | None = None

    @property
    def stops(self) -> StopStrings:
        """The stop strings of the task."""
        return StopStrings(self.limits.stop)

    def commit(self, entries: Sequence[Entry], fuse: FusionFunction, margins: Margins) -> None:
        """Score the pool, commit the candidate with the smallest F(s) (eq. 6, 7), and record it.

        Ties go to the earlier entry; a candidate that some model gives no finite NLL is out.
        """
        candidates = [self._candidate(entry, fuse) for entry in entries]
        finite = [i for i, c in enumerate(candidates) if all(map(math.isfinite, c.nll))]
        selected = min(finite, key=lambda index: candidates[index].fused, default=None)
        words = 0 if selected is None else len(candidates[selected].text.split())
        self.rounds.append(Round(tuple(candidates), selected, words, margins))
        if selected is None:
            self.reason, self.error = "error", self._no_finite(candidates)
            return
        for number, sequence in enumerate(self.sequences):
            sequence.engine.commit(entries[selected].nodes[number])
        longest = max(sequence.generated for sequence in self.sequences)
        self.append(entries[selected].text, entries[selected].ends, longest)

    def append(self, text: str, ends: bool, longest: int) -> None:
        """Add what a round committed to Y, and find out whether decoding stops there.

        Args:
            text: the span.
            ends: END was chosen.
            longest: the most generated ids that some model holds.
        """
        self.text += text
        self.reason = self._stop_reason(ends, longest)
        self.text = self.stops.cut(self.text)

    def finish(self, text: str, reason: StopReason) -> None:
        """Make `text` all of Y, cut before the first stop string, and end decoding."""
        self.text = self.stops.cut(text)
        self.reason = reason if self.text == text else "stop"

    def _candidate(self, entry: Entry, fuse: FusionFunction) -> Candidate:
        scores = [span_score(entry, number) for number in range(len(self.sequences))]
        nll = tuple(score.nll for score in scores)
        fused = math.inf
        if all(map(math.isfinite, nll)):
            fused = fuse(scores, self.weights, length_in_words(entry.text, entry.ends))
        return Candidate(entry.text, entry.ends, tuple(sorted(entry.spans)), nll, fused)

    def _stop_reason(self, ended: bool, longest: int) -> StopReason | None:
        if ended:
            return "eos"
        if self.stops.within(self.text):
            return "stop"
        if longest >= self.limits.max_new_tokens or len(self.rounds) == self.limits.max_rounds:
            return "length"
        return None

    def _no_finite(self, candidates: Sequence[Candidate]) -> str:
        names = [
            sequence.model.name
            for number, sequence in enumerate(self.sequences)
            if any(not math.isfinite(candidate.nll[number]) for candidate in candidates)
        ]
        return f"no candidate has a finite NLL under {' and '.join(names)}"
