"""The public face: an ensemble of language models that continues prompts together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from adafuse.engine.program import Program
from adafuse.engine.protocol import Engine
from adafuse.engine.scheduler import Failure, Outcome, Scheduler
from adafuse.engine.support import engine_for
from adafuse.errors import UserError
from adafuse.methods import resolve
from adafuse.methods.example import Example
from adafuse.methods.limits import Limits, Settings
from adafuse.methods.method import Method
from adafuse.methods.options import parse
from adafuse.methods.weights import check_weights
from adafuse.models.devices import Place
from adafuse.models.language_model import LanguageModel
from adafuse.models.loading import load_models, sources
from adafuse.records import Answer, Result


@dataclass(frozen=True)
class Ensemble:
    """Models m_1..m_K with their weights w_k.

    There are no models where a method starts from their answers and asks them for nothing; `place`
    is then where its own checkpoints go, which is where the first model is otherwise.
    """

    models: tuple[LanguageModel, ...]
    weights: tuple[float, ...]
    place: Place | None = None

    @classmethod
    def from_pretrained(
        cls,
        models: Sequence[str],
        *,
        dtype: str = "auto",
        device: str | Sequence[str] = "auto",
        revisions: Sequence[str | None] | None = None,
        weights: Sequence[float] | None = None,
        chat: bool | Sequence[bool] = False,
    ) -> "Ensemble":
        """Load models from folders or the Hugging Face hub.

        Args:
            models: folders or hub ids; the order is that of every list in the results.
            dtype: "auto" (float32 on a CPU, else bfloat16), "float32", "bfloat16" or "float16".
            device: "auto", one device for all, or one per model.
            revisions: hub revisions, one per model.
            weights: w_k of the fusion rule, 1 each by default.
            chat: put each prompt into the model's own chat template; one value, or one per model.

        Raises:
            UserError: a model, tokenizer or setting that cannot be used.
        """
        if not models:
            raise UserError("no model was given; name at least one")
        checked = check_weights(weights, len(models))
        wanted = sources(models, revisions=revisions, device=device, dtype=dtype, chat=chat)
        return cls(tuple(load_models(wanted)), checked)

    def generate(self, prompts: Sequence[str], **settings: Any) -> list[Result]:
        """Continue all prompts and return one result each, in order; see `stream`."""
        results = dict(self.stream(prompts, **settings))
        return [results[index] for index in range(len(prompts))]

    def stream(
        self,
        prompts: Sequence[str],
        *,
        method: str = "adafuse",
        max_new_tokens: int = 256,
        max_rounds: int | None = None,
        stop: Sequence[str] = (),
        batch_size: int = 8,
        engine: str = "tree",
        answers: Sequence[Sequence[Answer]] | None = None,
        tasks: Sequence[str] | None = None,
        **method_options: Any,
    ) -> Iterator[tuple[int, Result]]:
        """Continue prompts, yielding (index, result) as they end.

        Args:
            prompts: texts; each model tokenizes them its own way.
            method: a name from `adafuse.methods.METHODS`; `method_options` are its options.
            max_new_tokens: ends a text when some model holds that many generated ids.
            max_rounds: ends a text after that many rounds.
            stop: strings that end a text; it is cut before them.
            batch_size: how many examples are decoded at a time.
            engine: "tree", or "reference" to check it.
            answers: what each model wrote on its own, per prompt, for a method that starts from
                that; it is decoded where it is not given.
            tasks: the prompts without worked examples, for a method that reads finished answers;
                the prompts themselves by default.

        Raises:
            UserError: an unknown or impossible setting. What goes wrong in one example ends that
                example only, with stop reason "error".
        """
        if isinstance(prompts, str):
            raise UserError("prompts is one string; give a list of strings")
        given = {
            "max_new_tokens": max_new_tokens,
            "max_rounds": max_rounds,
            "stop": stop,
            "batch_size": batch_size,
            "engine": engine,
        }
        run = Run(self, resolve(method, method_options), parse(Settings, given, "generate"))
        known = answers if run.method.reads_answers else None
        return run.stream(Asked(prompts, tasks or prompts, known))


@dataclass(frozen=True, slots=True)
class Asked:
    """Prompts, the same without worked examples, and the models' own answers where known."""

    prompts: Sequence[str]
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
    """One method with its settings on an ensemble."""

    ensemble: Ensemble
    method: Method[Any]
    settings: Settings

    def stream(self, asked: Asked) -> Iterator[tuple[int, Result]]:
        """Decode all prompts; what cannot run is refused before the first one."""
        asked.check(len(self.ensemble.weights))
        self.method.check_models(len(self.ensemble.weights))
        self.method.prepare(self.ensemble.models, self._place())
        return self._outcomes(asked, self._engines())

    def _place(self) -> Place:
        if self.ensemble.place is not None:
            return self.ensemble.place
        first = self.ensemble.models[0]
        return Place(first.device, first.network.dtype)

    def _outcomes(self, asked: Asked, engines: list[Engine]) -> Iterator[tuple[int, Result]]:
        alive: dict[int, Example] = {}

        def program(index: int) -> Program[None]:
            alive[index] = asked.example(index, self.ensemble.weights, self.settings)
            return self._decode(alive[index], engines)

        jobs = ((index, partial(program, index)) for index in range(len(asked.prompts)))
        for outcome in Scheduler[None](self.settings.batch_size).run(jobs):
            yield outcome.index, _result(alive.pop(outcome.index), outcome)

    def _engines(self) -> list[Engine]:
        name, rows = self.settings.engine, self.settings.batch_size
        return [
            engine_for(model, name, top=self.method.top, rows=rows)
            for model in self.ensemble.models
        ]

    def _decode(self, example: Example, engines: list[Engine]) -> Program[None]:
        try:
            for engine in engines:
                example.sequences.append(engine.open(_prompt_ids(engine, example.prompt)))
            yield from self.method.decode(example)
        finally:
            for sequence in example.sequences:
                sequence.engine.close(sequence)


def _prompt_ids(engine: Engine, prompt: str) -> list[int]:
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
        error=failure.error if isinstance(failure, Failure) else example.error,
        traceback=failure.traceback if isinstance(failure, Failure) else None,
    )
