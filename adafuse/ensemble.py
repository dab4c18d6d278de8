"""The Python interface: models that decode together."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from adafuse.decoding.fusion import check_weights
from adafuse.decoding.likelihood import likelihoods
from adafuse.decoding.run import Run, result_of
from adafuse.decoding.words import DRAFTS, Draft, Settings
from adafuse.engine.scheduler import Finished
from adafuse.errors import UserError
from adafuse.methods import resolve
from adafuse.models.language_model import LanguageModel, load_models
from adafuse.models.placement import Place
from adafuse.models.spec import Loading, ModelSpec, model_specs
from adafuse.options import parse
from adafuse.records import Answer, Chat, Likelihood, Prompt, Result, question_of


class TextStream(Iterator[str]):
    """Spans of text as they are committed; `result` is there when all of them have been read.

    A stream that is not read to its end is to be closed, or used in a `with` block: it holds the
    keys and values of its models until then.
    """

    def __init__(self, spans: Generator[str | Result]) -> None:
        self._spans = spans
        self.result: Result | None = None

    def __next__(self) -> str:
        for span in self._spans:
            if isinstance(span, Result):
                self.result = span
            elif span:
                return span
        raise StopIteration

    def __enter__(self) -> "TextStream":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Decode no further, and give back what the models hold; there are no more spans."""
        self._spans.close()


@dataclass(frozen=True)
class Ensemble:
    """Models m_1..m_K with their weights w_k.

    There are none where a method only reads their answers; `place` is then where its own
    checkpoints go, which is where the first model is otherwise.
    """

    models: tuple[LanguageModel, ...]
    weights: tuple[float, ...]
    place: Place | None = None

    @classmethod
    def from_pretrained(
        cls,
        models: Sequence[str] | Sequence[ModelSpec],
        *,
        weights: Sequence[float] | None = None,
        **loading: Unpack[Loading],
    ) -> "Ensemble":
        """Load models from folders or the Hugging Face hub.

        Args:
            models: folders or hub ids, or specs that say all that `loading` could; lists in the
                results have their order.
            weights: w_k of the fusion rule, 1 each by default.
            **loading: the fields of `Loading`: one value for all models, or one per model.

        Raises:
            UserError: a model, tokenizer or setting that cannot be used.
        """
        if not models:
            raise UserError("no model was given; name at least one")
        checked = check_weights(weights, len(models))
        return cls(tuple(load_models(model_specs(models, **loading))), checked)

    @property
    def at(self) -> Place:
        """Where a method's own checkpoints go."""
        return self.place or Place(self.models[0].device, self.models[0].network.dtype)

    def generate(self, prompts: Sequence[Prompt], **settings: Any) -> list[Result]:
        """Continue all prompts and return one result each, in order; see `stream`."""
        results = dict(self.stream(prompts, **settings))
        return [results[index] for index in range(len(prompts))]

    def stream(
        self,
        prompts: Sequence[Prompt],
        *,
        method: str = "adafuse",
        max_new_tokens: int = 256,
        max_rounds: int | None = None,
        stop: Sequence[str] = (),
        batch_size: int | Literal["auto"] = 8,
        engine: str = "tree",
        drafts: Sequence[Draft] = DRAFTS,
        answers: Sequence[Sequence[Answer]] | None = None,
        questions: Sequence[str] | None = None,
        **method_options: Any,
    ) -> Iterator[tuple[int, Result]]:
        """Continue prompts, yielding (index, result) as they end.

        Args:
            prompts: texts, or conversations (`Chat`) for each model's own chat template.
            method: a name from `adafuse.methods.METHODS`; `method_options` are its options.
            max_new_tokens: ends a text when some model holds that many generated ids.
            max_rounds: ends a text after that many rounds.
            stop: strings that end a text; it is cut before them.
            batch_size: examples at a time; "auto" is as many as fit into the free memory.
            engine: "tree", or "reference" to check it.
            drafts: which likely tokens ride along in forwards; it changes what decoding costs, not
                a text (docs/performance.md).
            answers: what each model wrote on its own, per prompt, for a method that starts from
                that; decoded by default.
            questions: the prompts without few-shot examples, for `weighting: prompt` and for a
                method that reads finished answers; by default the prompts, of a conversation what
                the user said last.

        Raises:
            UserError: an unknown or impossible setting. What goes wrong in one example ends that
                example only, with stop reason "error".
        """
        if isinstance(prompts, str | Chat):
            raise UserError("prompts is one prompt; give a list of strings or chats")
        run = self._run(
            method,
            max_new_tokens=max_new_tokens,
            max_rounds=max_rounds,
            stop=stop,
            batch_size=batch_size,
            engine=engine,
            drafts=drafts,
            **method_options,
        )
        known = answers if run.method.reads_answers else None
        events = run.events(prompts, questions or [*map(question_of, prompts)], known)
        return (
            (event.example.index, result_of(event))
            for event in events
            if isinstance(event, Finished)
        )

    def loglikelihoods(
        self,
        asked: Sequence[tuple[Prompt, str]],
        *,
        batch_size: int | Literal["auto"] = 8,
        engine: str = "tree",
    ) -> Iterator[tuple[int, Likelihood]]:
        """Say how likely each model finds continuations, yielding (index, likelihood) as they end.

        Args:
            asked: prompts, each with the text after it. A model reads the prompt as it does when it
                generates, and encodes the text by itself. Those of one prompt share its
                computation.
            batch_size: prompts at a time; "auto" is as many as fit into the free memory.
            engine: "tree", or "reference" to check it.

        Raises:
            UserError: an impossible setting. What goes wrong in one of them is its `error`.
        """
        settings = {"batch_size": batch_size, "engine": engine}
        return likelihoods(self.models, asked, settings)

    def stream_text(
        self,
        prompt: Prompt,
        *,
        question: str | None = None,
        method: str = "adafuse",
        **settings: Any,
    ) -> TextStream:
        """Continue one prompt and yield its text while it is decoded, span by span.

        The spans together are the text that `generate` returns, and when they have all been read,
        the stream has its `result`. Settings are those of `stream`.

        Raises:
            UserError: an unknown or impossible setting.
        """
        run = self._run(method, **settings)
        return TextStream(run.text(prompt, question or question_of(prompt)))

    def _run(self, method: str, **settings: Any) -> Run:
        own = {name: settings.pop(name) for name in Settings.model_fields if name in settings}
        chosen = resolve(method, settings)
        return Run(self.models, self.weights, self.at, chosen, parse(Settings, own, "generate"))
