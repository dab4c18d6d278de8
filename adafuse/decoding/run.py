"""Decoding many prompts with one method: what is checked first, and how many at a time."""

import logging
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from adafuse.decoding.example import Example
from adafuse.decoding.limits import Limits, Settings
from adafuse.decoding.method import Method
from adafuse.engine.program import Engine, Program
from adafuse.engine.reference import engine_for
from adafuse.engine.scheduler import (
    Failure,
    Outcome,
    Scheduler,
    TooManyRowsError,
    memory_told,
    release,
)
from adafuse.errors import UserError
from adafuse.models.capacity import demands, rows_that_fit, slots
from adafuse.models.language_model import LanguageModel
from adafuse.models.placement import Place
from adafuse.records import Answer, Chat, Prompt, Result, letters
from adafuse.tokenization.prompts import check_chat, ids_if_any, shared_prefix

logger = logging.getLogger(__name__)

LONG_PROMPTS = 8
"""The longest of so many prompts, by letters, is taken for the longest in tokens."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Prompts, the same without worked examples, and the models' own answers where known."""

    prompts: Sequence[Prompt]
    tasks: Sequence[str]
    answers: Sequence[Sequence[Answer]] | None = None

    def check(self, models: int) -> None:
        """Refuse tasks and answers that do not belong to the prompts.

        Raises:
            UserError: another number of them.
        """
        for given, what in ((self.tasks, "tasks"), (self.answers, "lists of answers")):
            if given is not None and len(given) != len(self.prompts):
                raise UserError(
                    f"{len(given)} {what} for {len(self.prompts)} prompts; give one each"
                )
        for each in self.answers or ():
            if len(each) != models:
                raise UserError(f"{len(each)} answers of {models} models; give one per model")

    def example(self, index: int, weights: Sequence[float], limits: Limits) -> Example:
        """Return one prompt as an example that nothing was decoded of."""
        answers = None if self.answers is None else tuple(self.answers[index])
        return Example(weights, limits, self.prompts[index], self.tasks[index], answers)


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

    def stream(self, asked: Asked) -> Iterator[tuple[int, Result]]:
        """Decode all prompts; what cannot run is refused before the first one.

        Where memory runs out, the prompts that are left are decoded half as many at a time; once.
        """
        self._prepare(asked)
        return self._halving(asked, self._rows(asked.prompts))

    def text(self, prompt: Prompt, task: str) -> Generator[str | Result]:
        """Decode one prompt; yield its text as it is committed, and at last its result.

        What a stop string may still cut is held back; all of it, where the method may replace it.
        """
        asked = Asked([prompt], [task])
        self._prepare(asked)
        return self._spans(asked)

    def _prepare(self, asked: Asked) -> None:
        asked.check(len(self.weights))
        self.method.check_models(len(self.weights))
        if any(isinstance(prompt, Chat) for prompt in asked.prompts):
            for model in self.models:
                check_chat(model.tokenizer, model.name)
        self.method.prepare(self.models, self.place)

    def _spans(self, asked: Asked) -> Generator[str | Result]:
        alive: dict[int, Example] = {}
        shown = ""
        for outcome in self._turns(asked, [0], 1, alive):
            if outcome is not None:
                result = _result(alive[0], outcome)
                assert result.text.startswith(shown), "the method is one that replaces_text"
                yield result.text[len(shown) :]
                yield result
            elif not self.method.replaces_text:
                before, shown = shown, alive[0].settled
                yield shown[len(before) :]

    def _halving(self, asked: Asked, rows: int) -> Iterator[tuple[int, Result]]:
        left = dict.fromkeys(range(len(asked.prompts)))
        try:
            for index, result in self._outcomes(asked, list(left), rows):
                del left[index]
                yield index, result
            return
        except TooManyRowsError as error:
            if rows == 1:
                raise
            logger.warning("%s; going on with %d at a time", str(error), rows // 2)
        release()  # of the engines: nothing refers to them behind the exception
        yield from self._outcomes(asked, list(left), rows // 2)

    def _rows(self, prompts: Sequence[Prompt]) -> int:
        """Return how many examples are decoded at a time."""
        if self.settings.batch_size != "auto":
            return self.settings.batch_size
        needs = [
            each
            for model in self.models
            for each in demands(model, _longest(model, prompts) + self.settings.max_new_tokens)
        ]
        rows = rows_that_fit(needs, len(prompts))
        logger.info("%d examples at a time", rows)
        return rows

    def _outcomes(
        self, asked: Asked, indices: Sequence[int], rows: int
    ) -> Iterator[tuple[int, Result]]:
        alive: dict[int, Example] = {}
        for outcome in self._turns(asked, indices, rows, alive):
            if outcome is not None:
                yield outcome.index, _result(alive.pop(outcome.index), outcome)

    def _turns(
        self, asked: Asked, indices: Sequence[int], rows: int, alive: dict[int, Example]
    ) -> Iterator[Outcome[None] | None]:
        """Decode prompts as `Scheduler.run` does; `alive` gets the example of each."""

        def program(index: int) -> Program[None]:
            alive[index] = asked.example(index, self.weights, self.settings)
            return self._decode(alive[index], engines)

        jobs = ((index, partial(program, index)) for index in indices)
        with memory_told(rows):
            engines = self._engines(asked.prompts, rows)
            yield from Scheduler[None](rows).run(jobs)

    def _engines(self, prompts: Sequence[Prompt], rows: int) -> list[Engine]:
        name, top, new = self.settings.engine, self.method.top, self.settings.max_new_tokens
        most = [slots(model, _longest(model, prompts) + new) for model in self.models]
        engines = [
            engine_for(model, name, top=top, rows=rows, slots=count)
            for model, count in zip(self.models, most, strict=True)
        ]
        for engine in engines:
            prefix = shared_prefix(engine.model, prompts)
            if 0 < len(prefix) < engine.context:
                engine.share(prefix)
        return engines

    def _decode(self, example: Example, engines: list[Engine]) -> Program[None]:
        try:
            for engine in engines:
                example.sequences.append(engine.open(_prompt_ids(engine, example.prompt)))
            yield from self.method.decode(example)
        finally:
            for sequence in example.sequences:
                sequence.engine.close(sequence)


def _longest(model: LanguageModel, prompts: Sequence[Prompt]) -> int:
    """Return how many tokens the longest prompt has, as far as its letters tell."""
    chosen = sorted(prompts, key=letters)[-LONG_PROMPTS:]
    return max((len(ids_if_any(model.prompt_ids, prompt)) for prompt in chosen), default=1)


def _prompt_ids(engine: Engine, prompt: Prompt) -> list[int]:
    ids = engine.model.prompt_ids(prompt)
    if not ids:
        raise ValueError(f"the prompt {prompt!r} has no tokens for {engine.model.name}")
    if len(ids) >= engine.context:
        raise ValueError(
            f"the prompt has {len(ids)} tokens, but {engine.model.name} has a context of"
            f" {engine.context}; shorten the prompt"
        )
    return ids


def _result(example: Example, outcome: Outcome[None]) -> Result:
    failure = outcome.value
    failed = isinstance(failure, Failure)
    # Models behind the one that refused the prompt have no sequence: they count nothing.
    unopened = (0,) * (len(example.weights) - len(example.sequences))
    return Result(
        text=example.text,
        stop_reason="error" if failed else example.reason or "error",
        rounds=tuple(example.rounds),
        tokens=tuple(sequence.generated for sequence in example.sequences) + unopened,
        prompt_tokens=tuple(seq.prompt_length for seq in example.sequences) + unopened,
        forwards=tuple(sequence.forwards for sequence in example.sequences) + unopened,
        seconds=outcome.seconds + sum(answer.seconds for answer in example.answers or ()),
        error=failure.error if isinstance(failure, Failure) else None,
        traceback=failure.traceback if isinstance(failure, Failure) else None,
    )
