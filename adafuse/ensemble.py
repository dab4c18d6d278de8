"""The Python interface: models that decode together."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from adafuse.decoding.fusion import check_weights
from adafuse.decoding.likelihood import likelihoods
from adafuse.decoding.run import Run
from adafuse.decoding.words import DRAFTS, Draft, Settings
from adafuse.engine.scheduler import release
from adafuse.errors import UserError
from adafuse.methods import METHODS, resolve
from adafuse.models.language_model import LanguageModel, ServedModel, load_models, wrapped
from adafuse.models.memory import use_threads
from adafuse.models.placement import Place
from adafuse.models.spec import WHERE_SET, Loading, ModelSpec, model_specs
from adafuse.options import OTHER_LENGTHS, SAMPLING, listed, parse
from adafuse.records.result import (
    Answer,
    Chat,
    Likelihood,
    Messages,
    Prompt,
    Result,
    as_prompt,
)
from adafuse.results import Results

DecodedT = TypeVar("DecodedT", Result, Likelihood)

_GREEDY = "decoding is greedy, and the same each time; leave it out"
_ELSEWHERE = {
    **dict.fromkeys(OTHER_LENGTHS, "give max_new_tokens"),
    "max_length": "give max_new_tokens, which does not count the prompt",
    "stop_strings": "give stop",
    **dict.fromkeys((*SAMPLING, "seed"), _GREEDY),
    **dict.fromkeys(
        ("weights", "threads", *ModelSpec.model_fields), "give it to Ensemble.from_pretrained"
    ),
}
"""What other libraries call a setting, or have and this one has not."""


class TextStream(Iterator[str]):
    """An iterator over the spans of one text, as they are committed.

    If you do not read it to its end, close it or use it in a `with` block: until then it holds the
    KV cache of its prompt.

    Attributes:
        result: the `Result`, once all spans have been read; None before.
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
        """Stop decoding and free the KV cache; the stream then has no more spans."""
        self._spans.close()


class Ensemble:
    """Language models that generate one text together, word by word.

        with Ensemble.from_pretrained(["org/one", "org/other"]) as ensemble:
            for result in ensemble.generate(["Question: Who?\\nAnswer:"], stop=["\\n"]):
                print(result.text)

    `from_pretrained` loads models; `Ensemble([(model, tokenizer), ...])` takes models that are
    loaded already. `generate` continues prompts, `stream` yields each result as soon as its text
    ends, `stream_text` yields one text while it is decoded, and `loglikelihoods` scores given
    texts. `close`, or the end of a `with` block, frees the memory of the models.

    Args:
        models: the models m_1..m_K of the paper, each with its tokenizer. The list may be empty for
            a method that only reads the models' answers.
        weights: w_k, the weights of the models in the fusion rule (eq. 5); 1 each by default.
        place: device and dtype of checkpoints that a method itself loads, such as a ranker; those
            of the first model by default.

    Raises:
        UserError: something that is not a model, or weights that do not fit the models.
    """

    def __init__(
        self,
        models: Iterable[LanguageModel | tuple[PreTrainedModel, PreTrainedTokenizerBase]],
        weights: Iterable[float] | None = None,
        place: Place | None = None,
    ) -> None:
        self.models = tuple(map(_model, listed(models, "models", "of models")))
        if not self.models and weights is None:
            raise UserError("no model was given; give at least one")
        self.weights = check_weights(weights, len(self.models))
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
        """Drop the models, and free their memory unless you hold references to them."""
        for model in self.models:
            model.close()
        self.models, self._closed = (), True
        release()

    @classmethod
    def from_pretrained(
        cls,
        models: str | Path | ModelSpec | Iterable[str | Path] | Iterable[ModelSpec],
        *,
        weights: Iterable[float] | None = None,
        threads: int | Literal["auto"] = "auto",
        **loading: Unpack[Loading],
    ) -> "Ensemble":
        """Load models from folders or the Hugging Face hub.

        Args:
            models: folders, hub ids or GGUF files; or `ModelSpec`s, which replace `loading`. Lists
                in results follow their order.
            weights: w_k, the weights of the models in the fusion rule (eq. 5); 1 each by default.
            threads: number of CPU threads of torch in this process; "auto": as many as other
                processes leave free.
            **loading: `device`, `dtype`, `quantization`, `chat` and the other fields of `Loading`,
                each one value for all models or a list with one per model.

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
    def served_by(self) -> list[dict[str, Any] | None]:
        """What the server of each model says of itself; empty if all models are loaded here."""
        served = [isinstance(model, ServedModel) for model in self.models]
        pairs = zip(self.models, served, strict=True)
        return [model.description if there else None for model, there in pairs] * any(served)

    @property
    def server_failures(self) -> list[str]:
        """How servers failed so far, so that texts ended."""
        served = [model for model in self.models if isinstance(model, ServedModel)]
        return [failure for model in served for failure in model.server.http.failures]

    def while_served(
        self, results: Iterable[tuple[int, DecodedT]], then: str
    ) -> Iterator[tuple[int, DecodedT]]:
        """Yield results up to the first that a server's failure ended: it would count as wrong.

        Raises:
            UserError: with that failure, and what to do `then`.
        """
        before = len(self.server_failures)
        for number, result in results:
            if result.error is not None and (failures := self.server_failures[before:]):
                raise UserError(f"{failures[0]}; see its log and {then}")
            yield number, result

    @property
    def at(self) -> Place:
        """Device and dtype of the checkpoints that a method itself loads."""
        self._check_open()
        return self.place or Place(self.models[0].device, self.models[0].dtype)

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
        answers: Iterable[Iterable[Answer]] | None = None,
        questions: Iterable[str] | None = None,
        progress: bool = False,
        **options: object,
    ) -> Results:
        """Continue all prompts and return one result per prompt, in order.

        An error in one prompt, such as one that is too long, ends only that prompt: its result has
        the stop reason "error".

        Args:
            prompts: texts; or conversations, to which each model applies its own chat template:
                a `Chat` or a list of messages, such as `{"role": "user", "content": "Who?"}`.
            method: name of a decoding method, such as "adafuse" or "unite" (docs/methods.md).
            max_new_tokens: a text ends when it is this long in the tokens of some model.
            max_rounds: a text ends after this many rounds; no limit by default.
            stop: strings that end a text; the text is cut before the first of them.
            batch_size: number of prompts decoded at a time; "auto": as many as fit into memory.
            engine: "tree"; or "reference", which is slow and simple, to check the former.
            drafts: ways to guess next tokens, so that one forward pass evaluates several. They
                change the cost, not the text (docs/performance.md).
            answers: for each prompt, the `Answer` of each model, for a method that starts from the
                models' own answers; they are generated by default.
            questions: the prompts without few-shot examples, for `weighting="prompt"` and methods
                that read finished answers; by default the prompts or the user's last messages.
            progress: show a progress bar.
            **options: options of the method (docs/methods.md), such as `tau=0.5`. `fusion` may be a
                function of a candidate and the weights.

        Raises:
            UserError: an unknown setting, or a value that is not allowed.
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
        described = settings_of(self, {"method": method, **run.named({*settings, *options})})
        stream = run.results(given, questions, answers)
        results = [result for _, result in sorted(with_bar(stream, len(given), progress))]
        return Results(results, described, run.method.plugins)

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
        answers: Iterable[Iterable[Answer]] | None = None,
        questions: Iterable[str] | None = None,
        **options: object,
    ) -> Iterator[tuple[int, Result]]:
        """Continue prompts, and yield (index of the prompt, result) as soon as each text ends.

        The arguments are those of `generate`. Wrong ones are a `UserError` at the call, not when
        the first result is read.
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
        return run.results(_prompts(prompts), questions, answers)

    def loglikelihoods(
        self,
        pairs: Iterable[tuple[Prompt, str]],
        *,
        batch_size: int | Literal["auto"] = 8,
        engine: str = "tree",
    ) -> Iterator[tuple[int, Likelihood]]:
        """Score given continuations, and yield (index of the pair, likelihood) as they are done.

        An error in one pair is the `error` of its likelihood.

        Args:
            pairs: (prompt, continuation), which are encoded separately. Pairs with the same prompt
                share its forward passes.
            batch_size: number of prompts scored at a time; "auto": as many as fit into memory.
            engine: "tree"; or "reference", which is slow and simple, to check the former.

        Raises:
            UserError: a value that is not allowed.
        """
        self._check_open()
        settings = {"batch_size": batch_size, "engine": engine}
        given = map(_continuation, listed(pairs, "pairs", "of pairs (prompt, text)"))
        return likelihoods(self.models, [*given], settings)

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
        """Continue one prompt, and yield the text span by span while it is decoded.

        The spans together are the text that `generate` returns. `question` is the prompt without
        few-shot examples; the other arguments are those of `generate`.

        Raises:
            UserError: an unknown setting, or a value that is not allowed.
        """
        settings = {
            "max_new_tokens": max_new_tokens,
            "max_rounds": max_rounds,
            "stop": stop,
            "engine": engine,
            "drafts": drafts,
        }
        run = self._run(method, {**settings, **options})
        return TextStream(run.text(as_prompt(prompt, "the prompt"), question))

    def _check_open(self) -> None:
        if self._closed:
            raise UserError("this ensemble is closed; load its models again")

    def _run(self, method: str, settings: Mapping[str, object]) -> Run:
        self._check_open()
        if not isinstance(method, str):
            raise UserError(f"method is {method!r:.60}; give the name of one")
        chosen = METHODS.get(method)
        options = {} if chosen is None else chosen.Options.model_fields
        for name in settings:
            if name in _ELSEWHERE and name not in options:
                raise UserError(f"{name} is not a setting; {_ELSEWHERE[name]}")
        limits = {name: settings[name] for name in Settings.model_fields if name in settings}
        rest = {name: value for name, value in settings.items() if name not in limits}
        checked = parse(Settings, limits, "generate")
        return Run(self.models, self.weights, self.at, resolve(method, rest), checked)


def settings_of(ensemble: Ensemble, settings: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings of a trace: the models, and the `settings` that they decode with."""
    named = {
        name: getattr(value, "__name__", repr(value)) if callable(value) else value
        for name, value in settings.items()
    }
    where_set = {
        name: [dict(getattr(model, name)) or None for model in ensemble.models]
        for name in WHERE_SET
    }
    return {
        **named,
        "models": [model.name for model in ensemble.models],
        "weights": list(ensemble.weights),
        "chat_date": [model.chat_date for model in ensemble.models],
        **{name: values for name, values in where_set.items() if any(values)},
        **({"served": served} if (served := ensemble.served_by) else {}),
    }


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
        f"{kinds} cannot be a model of an ensemble; give a list of (PreTrainedModel, tokenizer) of"
        " transformers, or use Ensemble.from_pretrained"
    )


def with_bar(
    stream: Iterable[tuple[int, Result]], total: int, progress: bool
) -> Iterable[tuple[int, Result]]:
    """Return a stream of results which, with `progress`, shows on stderr how many came."""
    if not progress:
        return stream
    from tqdm.auto import tqdm

    bar: Iterable[tuple[int, Result]] = tqdm(stream, total=total, unit="prompt")
    return bar


def _prompts(prompts: Iterable[Prompt | Messages]) -> list[Prompt]:
    if isinstance(prompts, str | bytes | Chat):
        raise UserError("prompts is one prompt; give a list of texts or chats")
    unordered = isinstance(prompts, Mapping | set | frozenset) or _is_frame(prompts)
    if not isinstance(prompts, Iterable) or unordered:
        kind = type(prompts).__name__
        raise UserError(f"prompts is a {kind}; give a list of texts, such as list(frame['prompt'])")
    return [as_prompt(prompt, f"prompts[{n}]") for n, prompt in enumerate(prompts)]


def _continuation(given: object) -> tuple[Prompt, str]:
    match given:
        case (str() | Chat() as prompt, str() as text):
            as_prompt(text, "the text of a pair")
            return as_prompt(prompt, "the prompt of a pair"), text
    raise UserError(f"{given!r} is not a pair (prompt, text); give a prompt and the text after it")


def _is_frame(given: object) -> bool:
    """Whether it is a data frame, over which one iterates by columns."""
    return hasattr(given, "columns")
