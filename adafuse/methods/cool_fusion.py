"""The shortest text segment of Cool-Fusion (arXiv 2407.19807, section 3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from adafuse.decoding.answers import fits, written_alone
from adafuse.decoding.candidates import grow_foreign, pool, span_score
from adafuse.decoding.example import Example, best
from adafuse.decoding.fusion import (
    FusionFunction,
    SpanScore,
    each,
    joined,
    length_in_words,
    mean_perplexity,
)
from adafuse.decoding.method import Method
from adafuse.decoding.options import MethodOptions, WordTokens, told
from adafuse.decoding.round import Proposal, fuse_rounds
from adafuse.decoding.words import Span, WordRules, add_word, greedy_words
from adafuse.engine.node import TokenSequence
from adafuse.engine.program import Program
from adafuse.records import Candidate, Round, StopReason
from adafuse.tokenization.added_text import UNFINISHED


def shortest_segment(sequence: TokenSequence, rules: WordRules) -> Program[Span]:
    """Write the fewest greedy ids whose text is decodable: encoding it again gives these ids.

    The text has whole characters and something besides whitespace. A word is the longest segment,
    whatever its ids; END alone is a segment.
    """

    def decodable(text: str, ids: Sequence[int]) -> bool:
        if not text.strip() or text.endswith(UNFINISHED):
            return False
        return sequence.model.encode_span(text) == tuple(ids)

    return add_word(Span(sequence.root), rules, enough=decodable)


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

        def propose(sequence: TokenSequence) -> Program[Proposal]:
            return Proposal([(yield from self._segment(sequence, rules))])

        yield from fuse_rounds(example, propose, each(mean_perplexity))
        if self.options.rerank:
            rank_with(solo, example, mean_perplexity)

    def _segment(self, sequence: TokenSequence, rules: WordRules) -> Program[Span]:
        if self.options.segments == "shortest":
            return shortest_segment(sequence, rules)
        return greedy_words(sequence, rules, 1)
