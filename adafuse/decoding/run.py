"""Decoding many prompts with one method: what is checked first, and how many at a time."""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from adafuse.decoding.method import Method
from adafuse.decoding.round import Example
from adafuse.decoding.words import Settings
from adafuse.engine.node import Engine, Program
from adafuse.engine.reference import engine_for
from adafuse.engine.scheduler import (
    Event,
    Finished,
    PromptedT,
    Scheduler,
    TooManyRowsError,
    opened,
    release,
)
from adafuse.errors import UserError
from adafuse.models.language_model import LanguageModel, demands, slots
from adafuse.models.memory import rows_that_fit
from adafuse.models.placement import Place
from adafuse.records import Answer, Chat, Prompt, Result, letters
from adafuse.tokenization.prompts import check_chat, ids_if_any, shared_prefix

logger = logging.getLogger(__name__)

LONG_PROMPTS = 8
"""The longest of so many prompts, by letters, is taken for the longest in tokens."""


@dataclass(frozen=True)
class Runner(Generic[PromptedT]):
    """Runs a program on many prompts: as many at a time as the settings and the memory allow.

    `top` is how many of the likeliest next ids the program reads.
    """

    models: tuple[LanguageModel, ...]
    settings: Settings
    top: int
    program: Callable[[PromptedT], Program[None]]

    def events(
        self, prompts: Sequence[Prompt], start: Callable[[int], PromptedT]
    ) -> Iterator[Event[PromptedT]]:
        """Run all prompts; what cannot run is refused at the call.

        Where memory runs out, those that are left start again, half as many at a time; once.

        Args:
            prompts: all of them.
            start: returns what a program runs on, by number of its prompt.
        """
        if any(isinstance(prompt, Chat) for prompt in prompts):
            for model in self.models:
                check_chat(model.tokenizer, model.name)
        return self._halving(prompts, start, self._rows(prompts))

    def _halving(
        self, prompts: Sequence[Prompt], start: Callable[[int], PromptedT], rows: int
    ) -> Iterator[Event[PromptedT]]:
        left = dict.fromkeys(range(len(prompts)))
        event: Event[PromptedT] | None = None
        try:
            for event in Scheduler[PromptedT](rows).run(self._source(prompts, start, left, rows)):
                if isinstance(event, Finished):
                    del left[event.example.index]
                    if event.error is not None:
                        logger.warning("example %d failed: %s", event.example.index, event.error)
                yield event
            return
        except TooManyRowsError as error:
            if rows == 1:
                raise
            rows //= 2
            logger.warning("%s; going on with %d at a time", str(error), rows)
        if event is not None:
            event.example.sequences.clear()  # who listens holds the last event, and so its engines
        release()
        yield from Scheduler[PromptedT](rows).run(self._source(prompts, start, left, rows))

    def _source(
        self,
        prompts: Sequence[Prompt],
        start: Callable[[int], PromptedT],
        indices: dict[int, None],
        rows: int,
    ) -> Iterator[tuple[PromptedT, Program[None]]]:
        engines = self._engines(prompts, rows)
        for index in list(indices):
            example = start(index)
            yield example, opened(example, engines, self.program)

    def _rows(self, prompts: Sequence[Prompt]) -> int:
        """Return how many examples are decoded at a time."""
        if self.settings.batch_size != "auto":
            return self.settings.batch_size
        needs = [
            demand
            for model in self.models
            for demand in demands(model, _longest(model, prompts) + self.settings.max_new_tokens)
        ]
        rows = rows_that_fit(needs, len(prompts))
        logger.info("%d examples at a time", rows)
        return rows

    def _engines(self, prompts: Sequence[Prompt], rows: int) -> list[Engine]:
        new = self.settings.max_new_tokens
        most = [slots(model, _longest(model, prompts) + new) for model in self.models]
        engines = [
            engine_for(model, self.settings.engine, top=self.top, rows=rows, slots=count)
            for model, count in zip(self.models, most, strict=True)
        ]
        for engine in engines:
            prefix = shared_prefix(engine.model.prompt_ids, prompts)
            if 0 < len(prefix) < engine.context:
                engine.share(prefix)
        return engines


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts, the questions in them (without few-shot examples), and answers where known."""

    prompts: Sequence[Prompt]
    questions: Sequence[str]
    answers: Sequence[Sequence[Answer]] | None = None

    def check(self, models: int) -> None:
        """Refuse questions and answers that do not belong to the prompts.

        Raises:
            UserError: another number of them.
        """
        for given, what in ((self.questions, "questions"), (self.answers, "lists of answers")):
            if given is not None and len(given) != len(self.prompts):
                raise UserError(
                    f"{len(given)} {what} for {len(self.prompts)} prompts; give one each"
                )
        for answers in self.answers or ():
            if len(answers) != models:
                raise UserError(f"{len(answers)} answers of {models} models; give one per model")


@dataclass(frozen=True)
class Run:
    """One method with its settings on models m_1..m_K with their weights w_k.

    `place` is where further checkpoints of the method go.
    """

    models: tuple[LanguageModel, ...]
    weights: tuple[float, ...]
    place: Place
    method: Method[Any]
    settings: Settings

    def events(self, given: PromptSet) -> Iterator[Event[Example]]:
        """Decode all prompts; what cannot run is refused at the call."""
        given.check(len(self.weights))
        self.method.check_models(len(self.weights))
        runner = Runner(self.models, self.settings, self.method.top, self.method.decode)
        self.method.prepare(self.models, self.place)

        def start(index: int) -> Example:
            answers = None if given.answers is None else tuple(given.answers[index])
            prompt, question = given.prompts[index], given.questions[index]
            return Example(self.weights, self.settings, prompt, question, answers, index)

        return runner.events(given.prompts, start)

    def text(self, prompt: Prompt, question: str) -> Generator[str | Result]:
        """Decode one prompt; yield its text as it is committed, and at last its result.

        What a stop string may still cut is held back; all of it, where the method may replace it.
        """
        return self._spans(self.events(PromptSet([prompt], [question])))

    def _spans(self, events: Iterator[Event[Example]]) -> Generator[str | Result]:
        given = ""
        for event in events:
            if isinstance(event, Finished):
                result = result_of(event)
                assert result.text.startswith(given), "the method is one that replaces_text"
                yield result.text[len(given) :]
                yield result
            elif not self.method.replaces_text:
                before, given = given, event.example.settled
                yield given[len(before) :]


def result_of(event: Finished[Example]) -> Result:
    """Return what the decoding of an example came to."""
    example = event.example
    # Models after the one that refused the prompt have no sequence: they count nothing.
    unopened = (0,) * (len(example.weights) - len(example.sequences))
    return Result(
        text=example.text,
        stop_reason="error" if event.error is not None else example.reason or "error",
        rounds=tuple(example.rounds),
        tokens=tuple(sequence.generated for sequence in example.sequences) + unopened,
        prompt_tokens=tuple(seq.prompt_length for seq in example.sequences) + unopened,
        forwards=tuple(sequence.forwards for sequence in example.sequences) + unopened,
        seconds=event.seconds + sum(answer.seconds for answer in example.answers or ()),
        error=event.error,
        traceback=event.traceback,
    )


def _longest(model: LanguageModel, prompts: Sequence[Prompt]) -> int:
    """Return how many tokens the longest prompt has, as far as its letters tell."""
    chosen = sorted(prompts, key=letters)[-LONG_PROMPTS:]
    return max((len(ids_if_any(model.prompt_ids, prompt)) for prompt in chosen), default=1)
