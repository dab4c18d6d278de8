"""`rerank`: the models' own answers, ranked by what all models say of them."""

from typing import Annotated, Literal

from adafuse.decoding.answers import answer_entries, fits, own_answers
from adafuse.decoding.candidates import grow_foreign
from adafuse.decoding.example import Example
from adafuse.decoding.fusion import FusionFunction, each, mean_nll, mean_perplexity
from adafuse.decoding.method import Method
from adafuse.decoding.options import MethodOptions, told
from adafuse.engine.program import Program

SCORES: dict[str, FusionFunction] = {"mean_nll": mean_nll, "mean_perplexity": mean_perplexity}


class RerankOptions(MethodOptions):
    """What makes an answer the best one."""

    score: Annotated[
        Literal["mean_nll", "mean_perplexity"],
        told("what is smallest for the winner, a weighted mean over all models"),
    ] = "mean_nll"


class Rerank(Method[RerankOptions]):
    """Takes the one of the models' own answers that all together find likeliest per token.

    It is one round in the trace. An answer that has no tokens, or that is too long for the
    context of some model, has no score: it wins only if no other answer has one.
    """

    name = "rerank"
    Options = RerankOptions
    reads_answers = True

    def decode(self, example: Example) -> Program[None]:
        """Take the best of the answers, with its stop reason."""
        answers = yield from own_answers(example)
        pool = answer_entries(answers)
        scorable = [e for e in pool if (e.text or e.ends) and fits(e, example.sequences)]
        winner = pool[0]
        if scorable:
            yield from grow_foreign(scorable, example.sequences)
            margins = ((),) * len(example.sequences)
            selected = example.judge(scorable, each(SCORES[self.options.score]), margins)
            winner = scorable[selected]
            example.take(winner)
        answer = answers[winner.proposers[0]]
        example.text, example.reason = answer.text, answer.stop_reason
