"""`cool_fusion`: text segments chosen by mean perplexity (arXiv 2407.19807)."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Literal

from adafuse.decoding.answers import WrittenAnswer, greedy_answers
from adafuse.decoding.candidates import Pool, Span
from adafuse.decoding.fusion import mean_perplexity, per_candidate
from adafuse.decoding.method import Method
from adafuse.decoding.round import Example, Proposal, fuse_rounds
from adafuse.decoding.words import WordRules, add_word, empty_span, greedy_words
from adafuse.engine.node import Program, TokenSequence
from adafuse.options import MethodOptions, WordTokens
from adafuse.tokenization.text import UNFINISHED


class CoolFusionOptions(MethodOptions):
    """What a segment is, and whether whole answers compete (Cool+R)."""

    segments: Literal["aligned", "shortest"] = "aligned"
    """where a segment ends: at a word boundary of all tokenizers (in our reading, whitespace), or
    after the fewest tokens that decode to text"""
    rerank: bool = False
    """also rank the models' own answers (Cool+R)"""
    max_word_tokens: WordTokens = 16


class CoolFusion(Method[CoolFusionOptions]):
    """Each model writes the next segment; the one of the smallest mean perplexity is taken.

    The paper leaves open how END counts: here it is scored like a token.
    """

    name = "cool_fusion"
    Options = CoolFusionOptions

    @property
    def replaces_text(self) -> bool:
        return self.options.rerank

    def decode(self, example: Example) -> Program[None]:
        own = (yield from scored_answers(example)) if self.options.rerank else []

        aligned = self.options.segments == "aligned"
        write = partial(greedy_words, words=1) if aligned else shortest_segment

        def propose(sequence: TokenSequence) -> Program[Proposal]:
            rules = example.rules(self.options.max_word_tokens)
            return [(yield from write(sequence, rules))], ()

        yield from fuse_rounds(example, propose, per_candidate(mean_perplexity))
        if self.options.rerank:
            rank_with(own, example)


def shortest_segment(sequence: TokenSequence, rules: WordRules) -> Program[Span]:
    """Write the fewest greedy ids whose text is decodable: encoding it again gives these ids.

    A segment is at most a word, and not only whitespace; END alone is one (section 3).
    """

    def decodable(text: str, ids: Sequence[int]) -> bool:
        if not text.strip() or text.endswith(UNFINISHED):
            return False
        return sequence.model.encode_span(text) == tuple(ids)

    return add_word(empty_span(sequence), rules, enough=decodable)


def scored_answers(example: Example) -> Program[list[WrittenAnswer]]:
    """Have the models write their own answers, and score each other's.

    An answer is scored with its stop string, as spans of the fused answer are, and then cut; its
    thoughts are not scored. One that is too long for some model's context, or only thoughts, is
    left out.
    """
    answers = yield from greedy_answers(example)
    pool = Pool(example.sequences, begins=example.begins)
    for number, (candidate, reason) in enumerate(answers):
        candidate.thoughts = example.thoughts.length(candidate.text) if example.thoughts else 0
        only_thoughts = candidate.thoughts and not candidate.text[candidate.thoughts :]
        if reason != "error" and not only_thoughts:
            pool.add(number, [candidate])
    pool.candidates = list(filter(pool.has_room_for, pool.candidates))
    yield from pool.score()
    for candidate in pool.candidates:
        candidate.text = example.stops.cut(candidate.text)
    return [(own, answers[own.proposers[0]][1]) for own in pool.candidates]


def rank_with(own: Sequence[WrittenAnswer], example: Example) -> None:
    """Replace the text of a decoded example by an own answer of a smaller F(s) (Cool+R).

    The ranking is one more round of the trace, the fused answer first, which wins ties. Its
    proposers are the models that wrote the same answer. It commits no words if it stays. Of its
    spans, those count that are not all thoughts.
    """
    spans = answered(example)
    if not example.committed or not (spans or own):
        return
    fused = joined(spans) if spans else Span(nll=(math.inf,) * len(example.weights))
    fused.text, fused.ends = example.text, example.reason == "eos"
    rivals = {}
    for answer, reason in own:
        if answer.text == fused.text:
            fused.margins.update(answer.margins)
        else:
            rivals[answer] = reason
    pool = Pool(example.sequences)
    pool.candidates = [fused, *rivals]
    best = example.select(pool, per_candidate(mean_perplexity))
    if best is fused:
        example.rounds[-1] = replace(example.rounds[-1], words=0)
    else:
        example.text, example.reason = best.text, rivals[best]


def answered(example: Example) -> list[Span]:
    """Return the committed spans that hold some of the answer; none if Y is only thoughts."""
    length, spans = example.thought_length or 0, example.committed
    if length and length == len(example.text):
        return []
    ends = accumulate(len(span.text) for span in spans)
    return [span for span, end in zip(spans, ends, strict=True) if end > length or span.ends]


def joined(spans: Sequence[Span]) -> Span:
    """Return consecutive spans as one candidate, by what each model says of all of them."""
    models = range(len(spans[0].nll))
    tokens = tuple(sum(span.tokens[k] for span in spans) for k in models)
    logprobs = (math.fsum(span.logprob(k) for span in spans) for k in models)
    nll = tuple(-logprob / count for logprob, count in zip(logprobs, tokens, strict=True))
    return Span(nll=nll, tokens=tokens)
