"""`cool_fusion`: text segments chosen by mean perplexity (arXiv 2407.19807)."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from adafuse.decoding.answers import WrittenAnswer, greedy_answers
from adafuse.decoding.candidates import Candidate, Pool
from adafuse.decoding.fusion import FusionRule, each, mean_perplexity
from adafuse.decoding.method import Method
from adafuse.decoding.round import Example, Proposal, fuse_rounds
from adafuse.decoding.words import WordRules, add_word, greedy_words, unwritten
from adafuse.engine.node import Program, TokenSequence
from adafuse.options import MethodOptions, WordTokens, doc
from adafuse.records import Round
from adafuse.tokenization.text import UNFINISHED


class CoolFusionOptions(MethodOptions):
    """What a segment is, and whether whole answers compete (Cool+R)."""

    segments: Annotated[
        Literal["aligned", "shortest"],
        doc(
            "where a segment ends: at a word boundary of all tokenizers (a whitespace word in our"
            " reading), or after as few tokens as make text"
        ),
    ] = "aligned"
    rerank: Annotated[bool, doc("rank the models' own answers, too (Cool+R)")] = False
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
        own = (yield from scored_answers(example)) if self.options.rerank else []

        def propose(sequence: TokenSequence) -> Program[Proposal]:
            return [(yield from self._segment(sequence, rules))], ()

        yield from fuse_rounds(example, propose, each(mean_perplexity))
        if self.options.rerank:
            rank_with(own, example, mean_perplexity)

    def _segment(self, sequence: TokenSequence, rules: WordRules) -> Program[Candidate]:
        if self.options.segments == "shortest":
            return shortest_segment(sequence, rules)
        return greedy_words(sequence, rules, 1)


def shortest_segment(sequence: TokenSequence, rules: WordRules) -> Program[Candidate]:
    """Write the fewest greedy ids whose text is decodable: encoding it again gives these ids.

    The text has whole characters and something besides whitespace. A word is the longest segment,
    whatever its ids; END alone is a segment (section 3 of the paper).
    """

    def decodable(text: str, ids: Sequence[int]) -> bool:
        if not text.strip() or text.endswith(UNFINISHED):
            return False
        return sequence.model.encode_span(text) == tuple(ids)

    return add_word(unwritten(sequence), rules, enough=decodable)


def scored_answers(example: Example) -> Program[list[WrittenAnswer]]:
    """Have the models write their own answers from their roots, and score each other's there.

    An answer is scored as it was written, the stop string at its end included, as the spans of the
    fused answer are, and cut then. One that is too long for some model's context is left out.
    """
    answers = yield from greedy_answers(example)
    pool = Pool(example.sequences)
    for number, (candidate, reason) in enumerate(answers):
        if reason != "error":
            pool.add(number, [candidate])
    pool.keep(pool.has_room_for)
    yield from pool.score()
    for candidate in pool.candidates:
        candidate.text = example.stops.cut(candidate.text)
    return [(own, answers[own.proposers[0]][1]) for own in pool.candidates]


def rank_with(own: Sequence[WrittenAnswer], example: Example, rule: FusionRule) -> None:
    """Replace the text of a decoded example by an own answer of a smaller F(s) (Cool+R).

    The ranking is one more round of the trace, the fused answer first, which wins ties; its NLL is
    that of all committed spans together, its proposers are the models that wrote the same answer on
    their own. The round commits no words if the fused answer stands. The ids that the models hold
    stay those of the fused answer.
    """
    if example.reason is None or not example.committed:
        return
    fused = joined(example.committed)
    fused.text, fused.ends = example.text, example.reason == "eos"
    same = (candidate for candidate, _ in own if candidate.text == fused.text)
    fused.proposers = [number for candidate in same for number in candidate.proposers]
    answers = [(fused, example.reason), *(answer for answer in own if answer[0].text != fused.text)]
    for candidate, _ in answers:
        candidate.fused = rule(candidate, example.weights)
    finite = [answer for answer in answers if answer[0].finite]
    best, reason = min(finite, key=lambda answer: answer[0].fused, default=(None, None))
    candidates = tuple(candidate.record() for candidate, _ in answers)
    selected = None if best is None else [candidate for candidate, _ in answers].index(best)
    words = len(best.text.split()) if best is not None and selected else 0
    example.rounds.append(Round(candidates, selected, words, ((),) * len(example.sequences)))
    if best is not None and selected:
        example.text, example.reason = best.text, reason


def joined(spans: Sequence[Candidate]) -> Candidate:
    """Return consecutive spans as one candidate, by what each model says of all of them."""
    models = range(len(spans[0].nll))
    tokens = tuple(sum(span.tokens[k] for span in spans) for k in models)
    logprobs = (math.fsum(span.logprob(k) for span in spans) for k in models)
    nll = tuple(-logprob / count for logprob, count in zip(logprobs, tokens, strict=True))
    return Candidate(nll=nll, tokens=tokens)
