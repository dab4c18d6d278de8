"""`rerank`: the models' own answers, ranked by what all models say of them."""

from typing import Literal

from adafuse.decoding.answers import comparable, own_answers
from adafuse.decoding.candidates import Pool, Span
from adafuse.decoding.fusion import FusionRule, mean_nll, mean_perplexity, per_candidate
from adafuse.decoding.method import Method
from adafuse.decoding.round import Example
from adafuse.engine.node import Program
from adafuse.options import MethodOptions

SCORES: dict[str, FusionRule] = {"mean_nll": mean_nll, "mean_perplexity": mean_perplexity}


class RerankOptions(MethodOptions):
    """What makes an answer the best one."""

    score: Literal["mean_nll", "mean_perplexity"] = "mean_nll"
    """weighted mean over all models; the answer with the smallest wins"""


class Rerank(Method[RerankOptions]):
    """Takes the one of the models' own answers that all together find likeliest per token.

    It is one round in the trace. Thoughts are read before the answer, and not scored. An answer
    that has no tokens (nothing but thoughts), or that is too long for the context of some model,
    has no score: it wins only if no other answer has one.
    """

    name = "rerank"
    Options = RerankOptions
    reads_answers = True

    def decode(self, example: Example) -> Program[None]:
        answers = yield from own_answers(example)
        pool = Pool(example.sequences)
        for number, answer in comparable(answers):
            ends = answer.stop_reason == "eos"
            pool.add(number, [Span(answer.text, ends, thoughts=answer.thoughts or 0)])
        best = pool.candidates[0]
        pool.candidates = [
            s
            for s in pool.candidates
            if (s.text[s.thoughts :] or s.ends > bool(s.thoughts)) and pool.has_room_for(s)
        ]
        if pool.candidates:
            yield from pool.score()
            best = example.select(pool, per_candidate(SCORES[self.options.score]))
            example.commit(best)
        answer = answers[best.proposers[0]]
        example.finish(answer.text, answer.stop_reason, answer.thoughts)
