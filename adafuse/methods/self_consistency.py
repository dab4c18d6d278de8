"""`self_consistency`: samples of one model, and the answer that most of them give (2203.11171)."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from adafuse.decoding.candidates import Pool, Span
from adafuse.decoding.method import Method, Models
from adafuse.decoding.round import Example
from adafuse.decoding.sampling import draw, key_of
from adafuse.engine.node import Program
from adafuse.errors import ExampleError
from adafuse.options import MethodOptions, Positive, Text
from adafuse.plugins import not_there

logger = logging.getLogger(__name__)

ReadAnswer = Callable[[str], str]
"""Returns the answer in a text as it is compared; "" if it has none."""


def whole_text(text: str) -> str:
    """Return a text without its case and the amount of its white space."""
    return " ".join(text.split()).casefold()


def _known(scorer: str) -> str:
    from adafuse.metrics.registry import SCORERS

    if scorer not in SCORERS:
        raise ValueError(not_there("scorer", scorer, list(SCORERS)))
    return scorer


class SelfConsistencyOptions(MethodOptions):
    """What is sampled, and which sample is taken."""

    k: Positive = 5
    """number of samples"""
    select: Literal["majority", "likelihood"] = "majority"
    """the sample whose answer most samples give (`majority`), or the likeliest one (`likelihood`):
    that with the highest mean log-probability per token, which also decides ties"""
    scorer: Annotated[Text, AfterValidator(_known)] | None = None
    """scorer whose rules say which samples give the same answer; null: that of the benchmark in a
    configuration, elsewhere texts that differ only in case and white space are the same; change it
    when you vote outside a configuration"""
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.7
    """temperature of the samples"""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """draw from the likeliest tokens that together have this probability"""
    seed: int = 0
    """seed of the samples, combined with the prompt"""

    @model_validator(mode="after")
    def _scorer_is_for_votes(self) -> Self:
        if self.scorer is not None and self.select != "majority":
            raise ValueError(f"scorer {self.scorer!r} is for select majority; remove it")
        return self

    @property
    def functions(self) -> tuple[object, ...]:
        """The scorer."""
        if self.scorer is None:
            return ()
        from adafuse.metrics.registry import SCORERS

        return (SCORERS[self.scorer],)

    def reader(self) -> ReadAnswer | None:
        """Return what reads the answer that a sample votes for; None if there are no votes."""
        if self.select != "majority":
            return None
        if self.scorer is None:
            return whole_text
        from adafuse.metrics.registry import SCORERS

        return SCORERS[self.scorer].answer


class SelfConsistency(Method[SelfConsistencyOptions]):
    """Draws k texts from one model and takes one that gives the most frequent answer.

    Of equally frequent answers, and of the samples that give the answer, the likeliest sample is
    taken, of equally likely ones the first. A sample without an answer has no vote. Where a scorer
    compares no single answer, as for translations, the likeliest sample is taken. Sample i depends
    on the seed and the prompt: not on k, the batch, the engine or other prompts, but for rounding.

    A text is one round, so that `max_rounds` limits nothing. Its candidates are all samples, F(s)
    minus the votes for the answer, or the NLL where nobody votes. Thoughts are not scored.
    """

    name = "self_consistency"
    Options = SelfConsistencyOptions
    models = (1, 1)
    drafts = False

    @property
    def reads_distributions(self) -> bool:
        return True

    def for_scorer(self, scorer: str) -> Self:
        """Return the method that votes by a benchmark's scorer, unless another one is named."""
        options = self.options
        if options.select != "majority" or options.scorer is not None:
            return self
        return type(self)(options.model_copy(update={"scorer": scorer}))

    def prepare(self, models: Models) -> None:
        self._read = self.options.reader()
        if self.options.select == "majority" and self._read is None:
            logger.info(
                "scorer %s compares no single answer, so the likeliest of the samples is taken",
                self.options.scorer,
            )

    def decode(self, example: Example) -> Program[None]:
        options, (sequence,) = self.options, example.sequences
        prompt_ids = sequence.ids[: sequence.prompt_length]
        keys = [key_of(options.seed, number, prompt_ids) for number in range(options.k)]
        temperature, top_p = options.temperature, options.top_p
        samples = yield from draw(example, sequence, keys, temperature, top_p)
        drawn = [(each.span(), each.reason) for each in samples if each.reason != "error"]
        if not drawn:
            raise ExampleError(f"no sample has a finite NLL under {sequence.model.name}")
        pool = Pool(example.sequences)
        # A sample of nothing but thoughts has no score.
        pool.candidates = [span for span, _ in drawn if span.tokens[0]]
        best = drawn[0][0]
        if scored := pool.candidates:
            nll = [span.nll[0] for span in scored]
            for span, value in zip(
                scored, fused_scores(self._answers(example, scored), nll), strict=True
            ):
                span.fused = value
            best = min(scored, key=lambda span: (span.fused, span.nll[0]))
            example.take(pool, best, example.weights)
        text, reason = next((example.stops.cut(s.text), why) for s, why in drawn if s is best)
        assert reason is not None
        example.commit(best)
        example.finish(text, reason, best.thoughts or None)

    def _answers(self, example: Example, samples: Sequence[Span]) -> list[str] | None:
        """Return the answer that each sample votes for; None if there are no votes."""
        if self._read is None:
            return None
        texts = [example.stops.cut(span.text)[span.thoughts :] for span in samples]
        answers: list[object] = [self._read(text) for text in texts]
        if odd := [answer for answer in answers if not isinstance(answer, str)]:
            raise ExampleError(f"the scorer's `answer` returned {odd[0]!r:.60}; return a text")
        return [str(answer) for answer in answers]


def fused_scores(answers: Sequence[str] | None, nll: Sequence[float]) -> list[float]:
    """Return F(s) of each sample: minus the votes for its answer, or its NLL without votes."""
    if answers is None:
        return [*nll]
    votes = Counter(filter(None, answers))
    return [float(-votes[answer]) for answer in answers]
