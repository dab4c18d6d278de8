"""How likely the models find given continuations: their token trees, read without rounds."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adafuse.decoding.run import LONG_PROMPTS, Runner
from adafuse.decoding.words import Settings
from adafuse.engine.node import ContextFullError, Node, Program, TokenSequence, evaluated, gather
from adafuse.engine.scheduler import Finished
from adafuse.errors import ExampleError
from adafuse.models.language_model import LanguageModel
from adafuse.options import parse
from adafuse.records import Likelihood, Prompt
from adafuse.tokenization.prompts import ids_if_any

_Read = tuple[float, int, bool]
"""What one model says of a text: its log-probability, its ids, and whether all are greedy."""


@dataclass(eq=False)
class Continuations:
    """All texts that follow one prompt, each with the places where it was asked for."""

    index: int
    prompt: Prompt
    texts: Mapping[str, Sequence[int]]
    sequences: list[TokenSequence] = field(default_factory=list)
    found: dict[str, Likelihood] = field(default_factory=dict)


def likelihoods(
    models: tuple[LanguageModel, ...],
    asked: Sequence[tuple[Prompt, str]],
    settings: Mapping[str, Any],
) -> Iterator[tuple[int, Likelihood]]:
    """Read all texts after their prompts; see `Ensemble.loglikelihoods`.

    Raises:
        UserError: an impossible setting, at the call and not with the first likelihood.
    """
    grouped: dict[Prompt, dict[str, list[int]]] = {}
    for index, (prompt, text) in enumerate(asked):
        grouped.setdefault(prompt, {}).setdefault(text, []).append(index)
    longest = max(_longest(model, {text for _, text in asked}) for model in models)
    chosen = parse(Settings, {**settings, "max_new_tokens": longest}, "loglikelihood")
    prompts = list(grouped)
    events = Runner(models, chosen, 2, read).events(
        prompts, lambda number: Continuations(number, prompts[number], grouped[prompts[number]])
    )

    def found() -> Iterator[tuple[int, Likelihood]]:
        for event in events:
            if isinstance(event, Finished):
                for text, indices in event.example.texts.items():
                    likelihood = event.example.found.get(text) or _failed(len(models), event.error)
                    yield from ((index, likelihood) for index in indices)

    return found()


def read(continuations: Continuations) -> Program[None]:
    """Read one text after the other in the trees of all models."""
    for text in continuations.texts:
        read_by = yield from gather(_read(each, text) for each in continuations.sequences)
        logprobs, tokens, greedy = zip(*read_by, strict=True)
        continuations.found[text] = Likelihood(logprobs, tokens, greedy)


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
            f"the prompt and {text[:40]!r} after it are longer than the context of {model.name},"
            f" {sequence.engine.context} tokens; shorten the prompt"
        ) from None


def _step(parent: Node, node: Node) -> tuple[float, bool]:
    assert parent.next is not None
    logprob = float(parent.next.logprobs[node.token]) if node.logprob is None else node.logprob
    return logprob, parent.next.greedy == node.token


def _failed(models: int, error: str | None) -> Likelihood:
    return Likelihood((-math.inf,) * models, (0,) * models, (False,) * models, error)
