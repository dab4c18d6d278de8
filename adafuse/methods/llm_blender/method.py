"""From pairwise logits to one choice (arXiv 2306.02561, section 3.3).

In a comparison matrix M, M[i][j] is the logit l(i, j) that candidate i, shown first, is better
than j; the diagonal is 0. l is not antisymmetric, so both orders of a pair count.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import model_validator

from adafuse.decoding.answers import own_answers, without_errors
from adafuse.decoding.method import Method
from adafuse.decoding.round import Example
from adafuse.engine.node import Program
from adafuse.methods.llm_blender.requests import FuseRequest, RankRequest
from adafuse.options import MethodOptions, Positive, doc
from adafuse.records import Answer, Candidate, Round

if TYPE_CHECKING:
    from adafuse.methods.llm_blender.gen_fuser import GenFuser
    from adafuse.methods.llm_blender.pair_ranker import PairRanker
    from adafuse.models.language_model import LanguageModel
    from adafuse.models.placement import Place

Matrix = Sequence[Sequence[float]]


def preference(matrix: Matrix, i: int, j: int) -> float:
    """Return l(i, j) - l(j, i): positive where i is preferred, whatever the order shown."""
    return matrix[i][j] - matrix[j][i]


def scores(matrix: Matrix) -> tuple[float, ...]:
    """Return each candidate's mean preference over all candidates, itself included."""
    every = range(len(matrix))
    return tuple(sum(preference(matrix, i, j) for j in every) / len(matrix) for i in every)


def ranks(values: Sequence[float]) -> tuple[int, ...]:
    """Return ranks from 1, highest value first; equal values share the better rank."""
    return tuple(1 + sum(other > value for other in values) for value in values)


def best_of(matrix: Matrix, order: Sequence[int]) -> int:
    """Return the survivor of one bubble pass over the candidates in `order`.

    Each newcomer meets the best so far, which stays where neither is preferred. With cyclic
    preferences the survivor depends on the order.
    """
    best = order[0]
    for challenger in order[1:]:
        if preference(matrix, challenger, best) > 0:
            best = challenger
    return best


class LlmBlenderOptions(MethodOptions):
    """The two checkpoints, and what they read and write."""

    ranker: Annotated[str, doc("folder or hub id of the ranker (PairRM)")] = "llm-blender/PairRM-hf"
    fuser: Annotated[str, doc("folder or hub id of the fuser (T5)")] = "llm-blender/gen_fuser_3b"
    ranker_revision: Annotated[str | None, doc("commit of the ranker on the hub")] = None
    fuser_revision: Annotated[str | None, doc("commit of the fuser on the hub")] = None
    rank_only: Annotated[bool, doc("take the best answer as it is, and load no fuser")] = False
    bubble: Annotated[
        bool,
        doc(
            "the best is the survivor of one pass over the answers in order of the models, as the"
            " published code can choose it; needs `rank_only`"
        ),
    ] = False
    top_k: Annotated[Positive, doc("how many answers the fuser reads, best first")] = 3
    candidate_tokens: Annotated[
        Positive, doc("the most tokens of an answer that the fuser reads")
    ] = 128
    prompt_tokens: Annotated[Positive, doc("the most tokens of the fuser's prompt")] = 1024
    fused_tokens: Annotated[Positive, doc("the most tokens that the fuser writes")] = 128
    beams: Annotated[Positive, doc("beams of the fuser's search")] = 4
    instruction: Annotated[
        str,
        doc(
            "the first field of the fuser's prompt; the prompt without worked examples is the"
            " second"
        ),
    ] = "Give the best response to the input."

    @model_validator(mode="after")
    def _one_pass_finds_only_the_best(self) -> Self:
        if self.bubble and not self.rank_only:
            raise ValueError("bubble finds only the best answer; set rank_only, too")
        return self


class LlmBlender(Method[LlmBlenderOptions]):
    """PairRanker orders the models' own answers, GenFuser writes a new one from the best of them.

    The first round of the trace holds the answers with minus their rank scores as `fused`, the
    second the fuser's text. Equal answers are ranked once.
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
        """A ranker, and a fuser unless the best answer is taken as it is."""
        fuser = {} if self.options.rank_only else {"fuser": "t5"}
        return {"ranker": "deberta-v2", **fuser}

    def prepare(self, models: Sequence["LanguageModel"], place: "Place") -> None:
        """Load the ranker and the fuser."""
        from adafuse.methods.llm_blender.gen_fuser import FuserLimits, load_gen_fuser  # loads torch
        from adafuse.methods.llm_blender.pair_ranker import load_pair_ranker

        chosen = self.options
        self._ranker = load_pair_ranker(chosen.ranker, chosen.ranker_revision, place.device)
        if not chosen.rank_only:
            limits = FuserLimits(
                chosen.prompt_tokens, chosen.candidate_tokens, chosen.fused_tokens, chosen.beams
            )
            self._fuser = load_gen_fuser(chosen.fuser, chosen.fuser_revision, place, limits)
            most = min(chosen.top_k, len(models) or chosen.top_k)
            self._fuser.check_prompt(chosen.instruction, most)

    def decode(self, example: Example) -> Program[None]:
        """Rank the answers of the models, and fuse the `top_k` best."""
        answers = _distinct((yield from own_answers(example)))
        texts = [answer.text.strip() for answer, _ in answers]
        ranking = RankRequest(self._ranker, example.question, tuple(texts))
        yield [ranking]
        assert ranking.matrix is not None
        rank_scores = scores(ranking.matrix)
        order = sorted(range(len(texts)), key=ranks(rank_scores).__getitem__)
        if self.options.bubble:
            order = [best_of(ranking.matrix, range(len(texts)))]
        best = answers[order[0]][0]
        if self.options.rank_only:
            example.finish(best.text, best.stop_reason)
        example.rounds.append(_ranked(answers, rank_scores, order[0], len(example.text.split())))
        if not self.options.rank_only:
            yield from self._fuse(example, [texts[index] for index in order[: self.options.top_k]])

    def _fuse(self, example: Example, best: Sequence[str]) -> Program[None]:
        fusing = FuseRequest(self._fuser, self.options.instruction, example.question, tuple(best))
        yield [fusing]
        assert fusing.text is not None
        example.finish(fusing.text, "eos" if fusing.ended else "length")
        written = Candidate(fusing.text, fusing.ended, (), (), 0.0)
        example.rounds.append(Round((written,), 0, len(example.text.split()), ()))


def _distinct(answers: Sequence[Answer]) -> list[tuple[Answer, tuple[int, ...]]]:
    """Put equal texts together: the first answer of each, and the numbers of its models.

    Errors are left out.

    Raises:
        ExampleError: all of them are errors.
    """
    models: dict[str, list[int]] = {}
    for number, answer in without_errors(answers):
        models.setdefault(answer.text, []).append(number)
    return [(answers[numbers[0]], tuple(numbers)) for numbers in models.values()]


def _ranked(
    answers: Sequence[tuple[Answer, tuple[int, ...]]],
    rank_scores: Sequence[float],
    best: int,
    words: int,
) -> Round:
    candidates = [
        Candidate(answer.text, answer.stop_reason == "eos", models, (), -score)
        for (answer, models), score in zip(answers, rank_scores, strict=True)
    ]
    return Round(tuple(candidates), best, words, ())
