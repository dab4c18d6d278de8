"""`llm_blender`: own answers, ranked by pairs and fused by another model (arXiv 2306.02561)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adafuse.decoding.answers import comparable, own_answers
from adafuse.decoding.method import Method, Models
from adafuse.decoding.round import Example
from adafuse.engine.node import Program
from adafuse.methods.llm_blender.options import LlmBlenderOptions
from adafuse.records.result import Candidate, Round

if TYPE_CHECKING:
    from adafuse.methods.llm_blender.networks import GenFuser, PairRanker
    from adafuse.models.placement import Place


def preferences(matrix: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Return l(i, j) - l(j, i) for all i, j, positive where i is preferred (section 3.3).

    matrix[i][j] is l(i, j), the logit that candidate i, shown first, is better than j.
    """
    logits = np.array(matrix)
    return np.asarray(logits - logits.T)


def survivor(preferred: NDArray[np.float64], order: Sequence[int]) -> int:
    """Return the survivor of one bubble pass over the candidates in `order`.

    Each newcomer meets the best so far, which stays if neither is preferred.
    """
    best = order[0]
    for challenger in order[1:]:
        if preferred[challenger, best] > 0:
            best = challenger
    return best


class LlmBlender(Method[LlmBlenderOptions]):
    """PairRanker orders the models' own answers, GenFuser writes a new one from the best of them.

    The first round of the trace holds the answers with minus their rank scores as `fused`, the
    second the fuser's text. Equal answers are ranked once. Both networks read answers without their
    thoughts; if there are only thoughts, nothing is written from them.
    """

    name = "llm_blender"
    Options = LlmBlenderOptions
    models = (2, None)
    reads_answers = True
    uses_models = False
    _ranker: "PairRanker"
    _fuser: "GenFuser"

    @property
    def checkpoints(self) -> dict[str, str]:
        fuser = {} if self.options.rank_only else {"fuser": "t5"}
        return {"ranker": "deberta-v2", **fuser}

    def load(self, place: "Place") -> None:
        # This imports torch, which listing the methods should not wait for.
        from adafuse.methods.llm_blender.networks import load_gen_fuser, load_pair_ranker

        self._ranker = load_pair_ranker(self.checkpoint("ranker"), place.device)
        if not self.options.rank_only:
            self._fuser = load_gen_fuser(self.checkpoint("fuser"), self.options, place)

    def prepare(self, models: Models) -> None:
        top_k = self.options.top_k
        if not self.options.rank_only:
            self._fuser.check_prompt(min(top_k, len(models) or top_k))

    def decode(self, example: Example) -> Program[None]:
        answers = yield from own_answers(example)
        models: dict[str, list[int]] = {}  # by text: equal answers are ranked once
        for number, answer in comparable(answers):
            models.setdefault(answer.answer, []).append(number)
        distinct = [answers[numbers[0]] for numbers in models.values()]
        texts = [answer.answer.strip() for answer in distinct]

        matrix = yield from self._ranker.compare(example.question, texts)
        preferred = preferences(matrix)
        scores = preferred.mean(axis=1).tolist()
        order = sorted(range(len(texts)), key=lambda index: -scores[index])
        if self.options.bubble:
            order = [survivor(preferred, range(len(texts)))]
        best = distinct[order[0]]
        takes_best = self.options.rank_only or (best.thoughts and not best.answer)
        if takes_best:
            example.finish(best.text, best.stop_reason, best.thoughts)
        ranked = tuple(
            Candidate(answer.text, answer.stop_reason == "eos", tuple(numbers), (), -score)
            for answer, numbers, score in zip(distinct, models.values(), scores, strict=True)
        )
        example.rounds.append(Round(ranked, order[0], len(example.text.split()), ()))
        if not takes_best:
            best_texts = [texts[index] for index in order[: self.options.top_k]]
            text, ended = yield from self._fuser.fuse(example.question, best_texts)
            example.finish(text, "eos" if ended else "length")
            written = Candidate(text, ended, (), (), 0.0)
            example.rounds.append(Round((written,), 0, len(example.text.split()), ()))
