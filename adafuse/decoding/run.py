"""Decoding many prompts with one method: what is checked first, and how many at a time."""

import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Generic, Literal, TypeVar

from adafuse.decoding.drafts import Drafter, Lookup
from adafuse.decoding.fusion import WeightingOptions, check_weights
from adafuse.decoding.method import Method
from adafuse.decoding.round import Example
from adafuse.decoding.words import Settings
from adafuse.engine.choice import engine_for, needs
from adafuse.engine.node import Engine, Program
from adafuse.engine.scheduler import (
    Event,
    Finished,
    PromptedT,
    Scheduler,
    TooManyRowsError,
    opened,
    release,
    whole_prompt,
)
from adafuse.errors import ExampleError, UserError
from adafuse.models.language_model import LanguageModel, LoadedModel, ServedModel
from adafuse.models.memory import out_of_memory, rows_that_fit
from adafuse.models.placement import Place
from adafuse.options import listed
from adafuse.plugins import is_outside, places, said
from adafuse.records.result import Answer, Chat, Prompt, Result, letters, question_of
from adafuse.tokenization.prompts import check_chat, check_read, ids_if_any, shared_prefix
from adafuse.tokenization.thoughts import shared_thoughts

logger = logging.getLogger(__name__)

TextT = TypeVar("TextT")


@dataclass(frozen=True)
class Batch:
    """So many `rows` are decoded at a time, each of at most `longest[k]` ids in model k."""

    models: Sequence[LanguageModel]
    longest: Sequence[int]
    rows: int

    @classmethod
    def of(
        cls,
        models: Sequence[LanguageModel],
        longest: Sequence[int],
        rows: int | Literal["auto"],
        most: int = sys.maxsize,
        engine: str = "tree",
    ) -> "Batch":
        """Return a batch of at most `most` rows; "auto" is as many as fit into the free memory."""
        if rows == "auto":
            served = [model.server.slots for model in models if isinstance(model, ServedModel)]
            pairs = zip(models, longest, strict=True)
            taken = [needs(model, engine, size) for model, size in pairs]
            rows = rows_that_fit([*chain.from_iterable(taken)], min([most, *served]))
            logger.info("%d examples at a time", rows)
        return cls(models, longest, min(rows, most))

    def engines(self, name: str, top: int) -> list[Engine]:
        """Return an engine per model, which reads the `top` likeliest ids."""
        return [
            engine_for(model, name, top=top, rows=self.rows, longest=longest)
            for model, longest in zip(self.models, self.longest, strict=True)
        ]

    def halved(self, error: TooManyRowsError) -> "Batch":
        """Return a batch of half as many rows, after memory ran out, and say so."""
        rows = max(1, self.rows // 2)
        logger.warning("%s; going on with %d at a time", str(error), rows)  # which holds engines
        return replace(self, rows=rows)


@dataclass(frozen=True)
class Runner(Generic[PromptedT]):
    """Runs `program` on an example of each prompt, as many at a time as settings and memory allow.

    `start` makes the example of a prompt, `top` is how many of the likeliest ids the program reads,
    `ids` are those of its prompt.
    """

    models: tuple[LanguageModel, ...]
    settings: Settings
    top: int
    prompts: Sequence[Prompt]
    start: Callable[[int], PromptedT]
    program: Callable[[PromptedT], Program[None]]
    ids: Callable[[PromptedT, LanguageModel], list[int]] = whole_prompt

    def events(self) -> Iterator[Event[PromptedT]]:
        """Run all prompts; what cannot run is refused at the call.

        Where memory runs out, the unfinished ones start again, half as many at a time; once.
        """
        chats = [prompt for prompt in self.prompts if isinstance(prompt, Chat)]
        for model in self.models:
            if isinstance(model, LoadedModel):
                model.network.eval()  # type: ignore[no-untyped-call]  # trained since it was given
        for model in self.models if chats else ():
            check_chat(model.tokenizer, model.name)
        for chat in chats:
            check_read([model.tokenizer for model in self.models], chat)
        longest = [
            most_ids(model.prompt_ids, self.prompts, letters) + self.settings.max_new_tokens
            for model in self.models
        ]
        most, settings = max(1, len(self.prompts)), self.settings
        return self._halving(
            Batch.of(self.models, longest, settings.batch_size, most, settings.engine)
        )

    def _halving(self, batch: Batch) -> Iterator[Event[PromptedT]]:
        unfinished = dict.fromkeys(range(len(self.prompts)))
        event: Event[PromptedT] | None = None
        shown = set[str | None]()
        try:
            for event in Scheduler[PromptedT](batch.rows).run(self._programs(unfinished, batch)):
                if isinstance(event, Finished):
                    del unfinished[event.example.index]
                    if event.error is not None:
                        number = event.example.index + 1
                        logger.warning("prompt %d failed: %s", number, event.error)
                        if event.traceback not in shown:  # a bug fails in all prompts alike
                            logger.info("%s", event.traceback)
                        shown.add(event.traceback)
                yield event
            return
        except TooManyRowsError as error:
            if batch.rows == 1:
                raise
            batch = batch.halved(error)
        if event is not None:
            event.example.sequences.clear()  # who listens holds the last event, and so its engines
        release()
        yield from Scheduler[PromptedT](batch.rows).run(self._programs(unfinished, batch))

    def _programs(
        self, indices: Iterable[int], batch: Batch
    ) -> Iterator[tuple[PromptedT, Program[None]]]:
        engines = batch.engines(self.settings.engine, self.top)
        for engine in engines:
            prefix = shared_prefix(engine.model.prompt_ids, self.prompts)
            if len(prefix) < engine.context:
                engine.share(prefix)
        for index in list(indices):
            example = self.start(index)
            yield example, opened(example, engines, self.program, self.ids)


def most_ids(
    encode: Callable[[TextT], Sequence[int]], texts: Iterable[TextT], size: Callable[[TextT], int]
) -> int:
    """Return the most ids that any of the 8 largest texts has, at least 1."""
    longest = sorted(texts, key=size)[-8:]
    return max((len(ids_if_any(encode, text)) for text in longest), default=1) or 1


@dataclass(frozen=True)
class Run:
    """One method on models m_1..m_K with weights w_k; `place` is where its own checkpoints go."""

    models: tuple[LanguageModel, ...]
    weights: tuple[float, ...]
    place: Place
    method: Method[Any]
    settings: Settings
    start: Callable[..., Example] = Example

    def named(self, names: set[str]) -> dict[str, Any]:
        """Return settings as they were read, ready for JSON but for options that are functions."""
        limits = self.settings.model_dump(mode="json", include=names)
        return {**self.method.options.model_dump(include=names), **limits}

    def events(
        self,
        prompts: Sequence[Prompt],
        questions: Iterable[str] | None = None,
        answers: Iterable[Iterable[Answer]] | None = None,
    ) -> Iterator[Event[Example]]:
        """Decode all prompts; what cannot run is refused at the call. See `Ensemble.stream`."""
        asked = _questions(questions, prompts)
        own = None
        if answers is not None:
            if not self.method.reads_answers:
                raise UserError(
                    f"method {self.method.name!r} does not read answers; leave them out, or use a"
                    " method that starts from them, such as rerank"
                )
            own = _answers(answers, len(prompts), len(self.weights))
        self.prepare()
        check_thoughts(self.models, prompts)
        lookups = defaultdict[LanguageModel, Lookup](Lookup)

        def start(n: int) -> Example:
            given = None if own is None else own[n]
            return self.start(self.weights, self.settings, prompts[n], asked[n], given, n)

        program = partial(self.program, lookups=lookups)
        top = self.method.top
        return Runner(self.models, self.settings, top, prompts, start, program).events()

    def results(
        self,
        prompts: Sequence[Prompt],
        questions: Iterable[str] | None = None,
        answers: Iterable[Iterable[Answer]] | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Decode as `events` does; yield each prompt's number and result as soon as it ends."""
        events = self.events(prompts, questions, answers)
        return ((e.example.index, result_of(e)) for e in events if isinstance(e, Finished))

    def prepare(self) -> None:
        """Refuse models that do not fit the method, and build what all examples share."""
        self.method.check_models(len(self.weights))
        if self.method.top < 2:
            raise UserError(
                f"method {self.method.name!r} has top {self.method.top}; give 2 or more"
            )
        self.method.check_served([m.name for m in self.models if isinstance(m, ServedModel)])
        self.method.load(self.place)
        self.method.prepare(self.models)

    def program(self, example: Example, lookups: Mapping[LanguageModel, Lookup]) -> Program[None]:
        """Decode an example whose prompt is open in every model; say whose fault an error is."""
        method = type(self.method)
        try:
            yield from self._decode(example, lookups)
            faults = (each.fault(len(self.weights)) for each in example.rounds)
            if (fault := next(filter(None, faults), None)) is not None:
                raise ExampleError(f"method {method.name!r}: a round {fault}")
        except (KeyboardInterrupt, GeneratorExit, UserError, ExampleError):
            raise
        except BaseException as error:  # a plug-in may exit, and so may a handler of signals
            blamed = is_outside(method) if isinstance(error, Exception) else places(error)[0]
            if not blamed or out_of_memory(error):
                raise
            raise ExampleError(f"method {method.name!r}: {said(error, method)}") from error
        if example.reason not in ("eos", "stop", "length"):
            raise ExampleError(
                f"method {method.name!r} ended without a text: it left the stop reason"
                f" {example.reason!r}; have it commit until example.reason is set"
            )

    def _decode(self, example: Example, lookups: Mapping[LanguageModel, Lookup]) -> Program[None]:
        kinds = self.settings.drafts if self.method.drafts else ()
        prompt, models = example.prompt, [sequence.model for sequence in example.sequences]
        ids = [sequence.ids for sequence in example.sequences]
        example.thoughts = shared_thoughts(models, prompt, ids)
        strings = () if example.thoughts else self.settings.stop  # which do not apply to thoughts
        for sequence in example.sequences:
            sequence.stop = tuple(stop for stop in strings if isinstance(stop, str))
        yield from _generator("begin", self.method.begin(example))
        options = self.method.options
        prompted = isinstance(options, WeightingOptions) and options.weighting == "prompt"
        if prompted and not example.weighed:
            raise TypeError("begin leaves out `weighting: prompt`; have it call super().begin")
        if example.reweighed:
            try:
                example.weights = check_weights(example.weights, len(self.weights))
            except UserError as error:
                raise ValueError(f"begin: {error}") from error
        own = _generator("decode", self.method.decode(example))
        yield from Drafter(example, kinds, lookups).run(own) if kinds else own

    def text(self, prompt: Prompt, question: str | None) -> Generator[str | Result]:
        """Decode one prompt; yield its text as it is committed, and at last its result.

        What a stop string may still cut is held back; all of it, where the method may replace it.
        """
        return self._spans(self.events([prompt], None if question is None else [question]))

    def _spans(self, events: Iterator[Event[Example]]) -> Generator[str | Result]:
        given = ""
        for event in events:
            if isinstance(event, Finished):
                result = result_of(event)
                if (replaced := self.replaced(given, result.text)) is not None:
                    raise UserError(replaced)
                yield result.text[len(given) :]
                yield result
            elif not self.method.replaces_text:
                before, given = given, event.example.settled
                yield given[len(before) :]

    def replaced(self, given: str, text: str) -> str | None:
        """Return what is wrong with a text that does not begin with what was streamed of it."""
        if text.startswith(given):
            return None
        return (
            f"method {self.method.name!r} replaced text that was streamed;"
            " have its `replaces_text` return True"
        )


def _questions(given: Iterable[str] | None, prompts: Sequence[Prompt]) -> list[str]:
    """Return a question per prompt, by default what the prompt asks."""
    entries = "with a text per prompt"
    asked = map(question_of, prompts) if given is None else given
    questions = listed(asked, "questions", entries)
    if len(questions) != len(prompts):
        raise UserError(f"{len(questions)} questions for {len(prompts)} prompts; give one each")
    if not all(isinstance(text, str) for text in questions):
        raise UserError(f"questions is {questions!r:.60}; give a list {entries}")
    return questions


def _answers(
    given: Iterable[Iterable[Answer]], prompts: int, models: int
) -> list[tuple[Answer, ...]]:
    """Return the answers of all models to each prompt."""
    answers = [
        tuple(listed(own, f"answers[{number}]", "with an Answer per model"))
        for number, own in enumerate(listed(given, "answers", "with the answers to each prompt"))
    ]
    if len(answers) != prompts:
        raise UserError(f"{len(answers)} lists of answers for {prompts} prompts; give one each")
    for own in answers:
        if len(own) != models:
            raise UserError(f"{len(own)} answers of {models} models; give one per model")
        if odd := [answer for answer in own if not isinstance(answer, Answer)]:
            raise UserError(f"{odd[0]!r:.60} is not an answer; give Answer(text, stop_reason)")
    return answers


def _generator(hook: str, given: Program[None]) -> Program[None]:
    if not isinstance(given, Generator):
        raise TypeError(f"{hook} returned {given!r:.60}; make it a generator, with yield")
    return given


def check_thoughts(models: Sequence[LanguageModel], prompts: Sequence[Prompt]) -> None:
    """Refuse models of which some think after the first prompt and others do not."""
    for prompt in prompts[:1] if len(models) > 1 else ():
        ids = [ids_if_any(model.prompt_ids, prompt) for model in models]
        if all(ids):
            shared_thoughts(models, prompt, ids)


def result_of(event: Finished[Example]) -> Result:
    """Return what the decoding of an example came to."""
    example, sequences = event.example, event.example.sequences
    # Models after the one that refused the prompt have no sequence: they count nothing.
    rest = (0,) * (len(example.run_weights) - len(sequences))
    return Result(
        text=example.text,
        stop_reason="error" if event.error is not None else example.reason or "error",
        rounds=tuple(example.rounds),
        tokens=tuple(sequence.generated for sequence in sequences) + rest,
        prompt_tokens=tuple(sequence.prompt_length for sequence in sequences) + rest,
        forwards=tuple(sequence.forwards for sequence in sequences) + rest,
        seconds=event.seconds + sum(answer.seconds for answer in example.answers or ()),
        error=event.error,
        traceback=event.traceback,
        fits=_fits(example),
        thoughts=example.thought_length,
        evaluated=tuple(sequence.evaluated for sequence in sequences) + rest,
        id=str(example.index + 1),
        prompt=example.prompt,
        surfaces=tuple(example.surfaces),
    )


def lengths_within(example: Example) -> list[tuple[int, int]]:
    """Return how many ids each model has for Y, and how much of Y the first max_new_tokens hold."""
    found, limit, text = [], example.limits.max_new_tokens, example.text
    for sequence in example.sequences:
        ids = sequence.ids[sequence.prompt_length :]
        if example.replaced:  # they are those of another text
            ids = list(sequence.model.tokenizer.encode(text, add_special_tokens=False))
        prompt = sequence.model.anchor(sequence.ids[: sequence.prompt_length])
        all_fit = len(ids) <= limit
        found.append((len(ids), len(text) if all_fit else prompt.length_in(text, ids, limit)))
    return found


def _fits(example: Example) -> int | None:
    """Return how much of Y some model holds in max_new_tokens ids; None if all of it."""
    limit = example.limits.max_new_tokens
    if any(sequence.generated <= limit for sequence in example.sequences):
        return None
    longest = max((length for _, length in lengths_within(example)), default=len(example.text))
    return longest if longest < len(example.text) else None
