"""How likely the models find given continuations: a run that reads and writes nothing."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from adafuse.decoding.example import Example
from adafuse.decoding.limits import Settings
from adafuse.decoding.method import Method
from adafuse.decoding.options import MethodOptions, parse
from adafuse.decoding.run import LONG_PROMPTS, Asked, Run
from adafuse.engine.node import ContextFullError, Node, TokenSequence
from adafuse.engine.program import Program, evaluated, gather
from adafuse.errors import ExampleError
from adafuse.models.language_model import LanguageModel
from adafuse.models.placement import Place
from adafuse.records import Likelihood, Prompt
from adafuse.tokenization.prompts import ids_if_any

_Read = tuple[float, int, bool]
"""What one model says of a text: its log-probability, its ids, and whether all are greedy."""


class Reading(Method[MethodOptions]):
    """Reads all texts that stand behind a prompt, one after the other in its token trees."""

    name = "loglikelihood"
    Options = MethodOptions

    def __init__(self, texts: Mapping[Prompt, Sequence[str]]) -> None:
        super().__init__(MethodOptions())
        self._texts = texts
        self.found: dict[tuple[Prompt, str], Likelihood] = {}

    def decode(self, example: Example) -> Program[None]:
        """Find the likelihoods of the texts behind the prompt of `example`."""
        for text in self._texts[example.prompt]:
            read = yield from gather(_read(sequence, text) for sequence in example.sequences)
            logprobs, tokens, greedy = zip(*read, strict=True)
            self.found[example.prompt, text] = Likelihood(logprobs, tokens, greedy)
        example.finish("", "length")


def likelihoods(
    models: tuple[LanguageModel, ...],
    weights: tuple[float, ...],
    place: Place,
    asked: Sequence[tuple[Prompt, str]],
    settings: Mapping[str, Any],
) -> Iterator[tuple[int, Likelihood]]:
    """Read all texts behind their prompts; see `Ensemble.loglikelihoods`.

    Raises:
        UserError: an impossible setting, at the call and not with the first likelihood.
    """
    grouped: dict[Prompt, dict[str, list[int]]] = {}
    for index, (prompt, text) in enumerate(asked):
        grouped.setdefault(prompt, {}).setdefault(text, []).append(index)
    reading = Reading({prompt: list(texts) for prompt, texts in grouped.items()})
    longest = max(_longest(model, {text for _, text in asked}) for model in models)
    chosen = parse(Settings, {**settings, "max_new_tokens": longest}, "loglikelihood")
    run = Run(models, weights, place, reading, chosen)
    prompts = list(grouped)
    results = run.stream(Asked(prompts, [""] * len(prompts)))

    def found() -> Iterator[tuple[int, Likelihood]]:
        for number, result in results:
            for text, indices in grouped[prompts[number]].items():
                read = reading.found.pop((prompts[number], text), None)
                likelihood = read or _failed(len(models), result.error)
                yield from ((index, likelihood) for index in indices)

    return found()


def _longest(model: LanguageModel, texts: Collection[str]) -> int:
    """Return how many ids the longest text has, as far as their bytes tell."""
    chosen = sorted(texts, key=_bytes)[-LONG_PROMPTS:]
    return max((len(ids_if_any(model.encode_span, text)) for text in chosen), default=0) or 1


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


def _read(sequence: TokenSequence, text: str) -> Program[_Read]:
    chain = _chain(sequence, text)
    parents = [sequence.root, *chain[:-1]]
    # What follows the last id is not asked, unless that is how its own row comes back.
    unread = [node for node in chain[-1:] if node.logprob is None and parents[-1].released]
    yield from evaluated([*parents, *unread])
    read = [_step(parent, node) for parent, node in zip(parents, chain, strict=False)]
    for node in chain:
        node.release()
    return math.fsum(logprob for logprob, _ in read), len(chain), all(best for _, best in read)


def _chain(sequence: TokenSequence, text: str) -> list[Node]:
    try:
        return sequence.root.chain(sequence.model.encode_span(text))
    except ContextFullError:
        model = sequence.model
        raise ExampleError(
            f"the prompt and {text[:40]!r} behind it are longer than the context of {model.name},"
            f" {sequence.engine.context} tokens; shorten the prompt"
        ) from None


def _step(parent: Node, node: Node) -> tuple[float, bool]:
    assert parent.next is not None
    logprob = float(parent.next.vector[node.token]) if node.logprob is None else node.logprob
    return logprob, parent.next.greedy == node.token


def _failed(models: int, error: str | None) -> Likelihood:
    return Likelihood((-math.inf,) * models, (0,) * models, (False,) * models, error)
