"""Cool+R: the fused answer against the models' own ones (arXiv 2407.19807)."""

from collections.abc import Sequence
from dataclasses import dataclass

from adafuse.engine.program import Program
from adafuse.methods.answers import fits, written_alone
from adafuse.methods.example import Example, best
from adafuse.methods.fusion import FusionFunction, SpanScore, joined, length_in_words
from adafuse.methods.pool import grow_foreign, pool, span_score
from adafuse.records import Candidate, Round, StopReason


@dataclass(frozen=True, slots=True)
class RankedAnswer:
    """A whole answer, cut at stop strings, why it ends, who wrote it, and each model's score."""

    text: str
    reason: StopReason
    proposers: tuple[int, ...]
    scores: tuple[SpanScore, ...]


def solo_answers(example: Example) -> Program[list[RankedAnswer]]:
    """Have the models write their own answers under their roots, and each other's be scored there.

    An answer is scored as it was written, the stop string at its end included, as the spans of the
    fused answer are. One that is too long for some model's context is left out.
    """
    solos = yield from written_alone(example)
    spans = ([solo.span] if solo.reason != "error" else [] for solo in solos)
    entries = [entry for entry in pool(spans) if fits(entry, example.sequences)]
    yield from grow_foreign(entries, example.sequences)
    return [
        RankedAnswer(
            example.stops.cut(entry.text),
            solos[entry.proposers[0]].reason,
            tuple(entry.proposers),
            tuple(span_score(entry, number) for number in range(len(solos))),
        )
        for entry in entries
    ]


def rank_with(solo: Sequence[RankedAnswer], example: Example, fuse: FusionFunction) -> None:
    """Replace the text of a decoded example by an own answer of a smaller F(s).

    The ranking is one more round of the trace, the fused answer first, which wins ties; its NLL is
    that of all committed spans together, its proposers are the models that wrote the same alone.
    The round commits no words if the fused answer stands. The ids that the models hold stay those
    of the fused answer.
    """
    if example.reason is None or not example.committed:
        return
    scores = tuple(joined(column) for column in zip(*example.committed, strict=True))
    same = [answer for answer in solo if answer.text == example.text]
    others = [answer for answer in solo if answer.text != example.text]
    writers = tuple(number for answer in same for number in answer.proposers)
    answers = [RankedAnswer(example.text, example.reason, writers, scores), *others]
    candidates = tuple(_candidate(answer, example.weights, fuse) for answer in answers)
    selected = best(candidates)
    words = len(answers[selected].text.split()) if selected else 0
    margins = ((),) * len(example.sequences)
    example.rounds.append(Round(candidates, selected, words, margins))
    if selected:
        example.text, example.reason = answers[selected].text, answers[selected].reason


def _candidate(answer: RankedAnswer, weights: Sequence[float], fuse: FusionFunction) -> Candidate:
    ends = answer.reason == "eos"
    fused = fuse(answer.scores, weights, length_in_words(answer.text, ends))
    nll = tuple(score.nll for score in answer.scores)
    return Candidate(answer.text, ends, answer.proposers, nll, fused)
