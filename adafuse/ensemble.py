"""The Python interface: models that decode together."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from adafuse.decoding.fusion import FUSION_RULES, check_weights
from adafuse.decoding.likelihood import likelihoods
from adafuse.decoding.run import Run, result_of
from adafuse.decoding.words import DRAFTS, Draft, Settings
from adafuse.engine.scheduler import Finished, release
from adafuse.errors import UserError
from adafuse.methods import METHODS, resolve
from adafuse.models.language_model import LanguageModel, load_models, wrapped
from adafuse.models.memory import use_threads
from adafuse.models.placement import Place
from adafuse.models.spec import Loading, ModelSpec, model_specs
from adafuse.options import parse
from adafuse.plugins import code_of
from adafuse.records.result import (
    Answer,
    Chat,
    Likelihood,
    Messages,
    Prompt,
    Result,
    as_prompt,
    question_of,
)
from adafuse.results import Results

_GREEDY = "decoding is greedy, and the same each time; leave it out"
_ELSEWHERE = {
    "max_tokens": "give max_new_tokens",
    "max_length": "give max_new_tokens, which does not count the prompt",
    "stop_strings": "give stop",
    **dict.fromkeys(("temperature", "top_p", "do_sample", "seed", "num_beams"), _GREEDY),
}
"""What other libraries call a setting, or have and this one has not."""


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


class Ensemble:
    """Language models that write one text together, word by word.

        with Ensemble.from_pretrained(["org/one", "org/other"]) as ensemble:
            for result in ensemble.generate(["Question: Who?\\nAnswer:"], stop=["\\n"]):
                print(result.text)

    `from_pretrained` loads models, `Ensemble([(model, tokenizer), ...])` takes what is loaded.
    `generate` continues prompts and returns their results, `stream` yields them as they end,
    `stream_text` yields one text while it is decoded, `loglikelihoods` scores given texts. `close`,
    or the end of a `with` block, frees the memory of the models.

    `models` are m_1..m_K, `weights` their w_k. There are no models where a method only reads their
    answers; `place` is then where its own checkpoints go, which is where the first model is
    otherwise.

    Raises:
        UserError: something else than models, or weights that do not fit them.
    """

    def __init__(
        self,
        models: Sequence[LanguageModel | tuple[PreTrainedModel, PreTrainedTokenizerBase]],
        weights: Sequence[float] | None = None,
        place: Place | None = None,
    ) -> None:
        if not isinstance(models, Iterable):
            raise UserError(f"models is {models!r}; give a list of models")
        self.models = tuple(map(_model, models))
        if not self.models and not weights:
            raise UserError("no model was given; give at least one")
        self.weights = check_weights(weights, len(self.models) or len(weights or ()))
        self.place = place
        self._closed = False

    def __repr__(self) -> str:
        names = " + ".join(Path(model.name).name for model in self.models)
        return f"<Ensemble of {names or 'no models'}{', closed' * self._closed}>"

    def __enter__(self) -> "Ensemble":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget the models, and give their memory back if nobody else holds them."""
        self.models, self._closed = (), True
        release()

    @classmethod
    def from_pretrained(
        cls,
        models: str | Path | Iterable[str | Path] | Iterable[ModelSpec],
        *,
        weights: Sequence[float] | None = None,
        threads: int | Literal["auto"] = "auto",
        **loading: Unpack[Loading],
    ) -> "Ensemble":
        """Load models from folders or the Hugging Face hub.

        Args:
            models: folders or hub ids, or specs that say all that `loading` could; lists in the
                results have their order.
            weights: w_k of the fusion rule, 1 each by default.
            threads: CPU threads of torch in this process; "auto" is as many as others leave free.
            **loading: the fields of `Loading`: one value for all models, or one per model.

        Raises:
            UserError: a model, tokenizer or setting that cannot be used.
        """
        specs = model_specs(models, **loading)
        if not specs:
            raise UserError("no model was given; name at least one")
        checked = check_weights(weights, len(specs))
        use_threads(threads)
        return cls(load_models(specs), checked)

    @property
    def at(self) -> Place:
        """Where a method's own checkpoints go."""
        self._check_open()
        return self.place or Place(self.models[0].device, self.models[0].network.dtype)

    def generate(
        self,
        prompts: Iterable[Prompt | Messages],
        *,
        method: str = "adafuse",
        max_new_tokens: int = 256,
        max_rounds: int | None = None,
        stop: Sequence[str] = (),
        batch_size: int | Literal["auto"] = 8,
        engine: Literal["tree", "reference"] = "tree",
        drafts: Sequence[Draft] = DRAFTS,
        answers: Sequence[Sequence[Answer]] | None = None,
        questions: Sequence[str] | None = None,
        progress: bool = False,
        **options: object,
    ) -> Results:
        """Continue all prompts and return one result each, in order.

        Args:
            prompts: texts; or conversations, as `Chat` or lists of messages {"role", "content"},
                for each model's own chat template.
            method: a name that `adafuse methods` lists.
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
            progress: show a progress bar.
            **options: those of the method (docs/methods.md), such as tau=0.5; `fusion` may be a
                function of a candidate and the weights.

        Raises:
            UserError: an unknown or impossible setting. What goes wrong in one example ends that
                example only, with stop reason "error".
        """
        given = _prompts(prompts)
        settings: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "max_rounds": max_rounds,
            "stop": stop,
            "batch_size": batch_size,
            "engine": engine,
        }
        run = self._run(method, {**settings, "drafts": drafts, **options})
        described = self._described({"method": method, **options, **settings})
        stream: Iterable[tuple[int, Result]] = _results(run, given, questions, answers)
        if progress:
            from tqdm.auto import tqdm

            stream = tqdm(stream, total=len(given), unit="prompt")
        found = dict(stream)
        return Results((found[index] for index in range(len(given))), given, *described)

    def stream(
        self,
        prompts: Iterable[Prompt | Messages],
        *,
        method: str = "adafuse",
        max_new_tokens: int = 256,
        max_rounds: int | None = None,
        stop: Sequence[str] = (),
        batch_size: int | Literal["auto"] = 8,
        engine: Literal["tree", "reference"] = "tree",
        drafts: Sequence[Draft] = DRAFTS,
        answers: Sequence[Sequence[Answer]] | None = None,
        questions: Sequence[str] | None = None,
        **options: object,
    ) -> Iterator[tuple[int, Result]]:
        """Continue prompts, yielding (index, result) as they end; see `generate`.

        Raises:
            UserError: an unknown or impossible setting, at the call.
        """
        settings = {
            "max_new_tokens": max_new_tokens,
            "max_rounds": max_rounds,
            "stop": stop,
            "batch_size": batch_size,
            "engine": engine,
            "drafts": drafts,
        }
        run = self._run(method, {**settings, **options})
        return _results(run, _prompts(prompts), questions, answers)

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
        self._check_open()
        settings = {"batch_size": batch_size, "engine": engine}
        return likelihoods(self.models, [*map(_continuation, asked)], settings)

    def stream_text(
        self,
        prompt: Prompt | Messages,
        *,
        question: str | None = None,
        method: str = "adafuse",
        max_new_tokens: int = 256,
        max_rounds: int | None = None,
        stop: Sequence[str] = (),
        engine: Literal["tree", "reference"] = "tree",
        drafts: Sequence[Draft] = DRAFTS,
        **options: object,
    ) -> TextStream:
        """Continue one prompt and yield its text while it is decoded, span by span.

        The spans together are the text that `generate` returns, and when they have all been read,
        the stream has its `result`. `question` is the prompt without few-shot examples; the other
        settings are those of `generate`.

        Raises:
            UserError: an unknown or impossible setting.
        """
        settings = {
            "max_new_tokens": max_new_tokens,
            "max_rounds": max_rounds,
            "stop": stop,
            "engine": engine,
            "drafts": drafts,
        }
        run = self._run(method, {**settings, **options})
        given = as_prompt(prompt, "the prompt")
        return TextStream(run.text(given, question or question_of(given)))

    def _described(self, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return what a file of results says of how they were made, and the plug-ins' code."""
        rule = settings.get("fusion")
        fuse = rule if callable(rule) else FUSION_RULES.get(rule or "")
        used = code_of(METHODS[settings["method"]], fuse)
        named = {
            name: getattr(value, "__name__", repr(value)) if callable(value) else value
            for name, value in settings.items()
        }
        named |= {
            "models": [model.name for model in self.models],
            "weights": self.weights,
            "chat_date": [model.chat_date for model in self.models],
        }
        return named, used

    def _check_open(self) -> None:
        if self._closed:
            raise UserError("this ensemble is closed; load its models again")

    def _run(self, method: str, settings: Mapping[str, object]) -> Run:
        self._check_open()
        chosen = METHODS.get(method)
        options = {} if chosen is None else chosen.Options.model_fields
        for name in settings:
            if name in _ELSEWHERE and name not in options:
                raise UserError(f"{name} is not a setting; {_ELSEWHERE[name]}")
        own = {name: settings[name] for name in Settings.model_fields if name in settings}
        rest = {name: value for name, value in settings.items() if name not in own}
        checked = parse(Settings, own, "generate")
        return Run(self.models, self.weights, self.at, resolve(method, rest), checked)


def _model(given: object) -> LanguageModel:
    if isinstance(given, LanguageModel):
        return given
    kinds = type(given).__name__
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2:
        network, tokenizer = given
        kinds = f"({type(network).__name__}, {type(tokenizer).__name__})"
        if isinstance(network, PreTrainedModel) and isinstance(tokenizer, PreTrainedTokenizerBase):
            return wrapped(network, tokenizer)
    raise UserError(
        f"{kinds} is no model of an ensemble; give a list of (PreTrainedModel, tokenizer) of"
        " transformers, or use Ensemble.from_pretrained"
    )


def _prompts(prompts: Iterable[Prompt | Messages]) -> list[Prompt]:
    if isinstance(prompts, str | bytes | Chat):
        raise UserError("prompts is one prompt; give a list of texts or chats")
    if not isinstance(prompts, Iterable) or isinstance(prompts, Mapping) or _is_frame(prompts):
        kind = type(prompts).__name__
        raise UserError(f"prompts is a {kind}; give a list of texts, such as list(frame['prompt'])")
    return [as_prompt(prompt, f"prompts[{n}]") for n, prompt in enumerate(prompts)]


def _continuation(given: object) -> tuple[Prompt, str]:
    match given:
        case (str() | Chat() as prompt, str() as text):
            return prompt, text
    raise UserError(f"{given!r} is no (prompt, text); give pairs of a prompt and the text after it")


def _is_frame(given: object) -> bool:
    """Whether it is a data frame, over which one iterates by columns."""
    return hasattr(given, "columns")


def _results(
    run: Run,
    prompts: Sequence[Prompt],
    questions: Sequence[str] | None,
    answers: Sequence[Sequence[Answer]] | None,
) -> Iterator[tuple[int, Result]]:
    known = answers if run.method.reads_answers else None
    events = run.events(prompts, questions or [*map(question_of, prompts)], known)
    return (
        (event.example.index, result_of(event)) for event in events if isinstance(event, Finished)
    )
