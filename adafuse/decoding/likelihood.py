"""How likely the models find given continuations: their token trees, read without rounds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adafuse.decoding.run import Runner, most_ids
from adafuse.decoding.words import Settings
from adafuse.engine.node import ContextFullError, Node, Program, TokenSequence, evaluated, gather
from adafuse.engine.scheduler import Finished
from adafuse.errors import ExampleError
from adafuse.models.language_model import LanguageModel
from adafuse.options import parse
from adafuse.records import Likelihood, Prompt


@dataclass(eq=False)
class Continuations:
    """All texts that follow one prompt, each with the indices of its requests."""

    index: int
    prompt: Prompt
    texts: Mapping[str, Sequence[int]]
    sequences: list[TokenSequence] = field(default_factory=list)
    found: dict[str, Likelihood] = field(default_factory=dict)


def likelihoods(
    models: tuple[LanguageModel, ...],
    requests: Sequence[tuple[Prompt, str]],
    settings: Mapping[str, Any],
) -> Iterator[tuple[int, Likelihood]]:
    """Read all texts after their prompts; see `Ensemble.loglikelihoods`."""
    grouped: dict[Prompt, dict[str, list[int]]] = {}
    for index, (prompt, text) in enumerate(requests):
        grouped.setdefault(prompt, {}).setdefault(text, []).append(index)
    sizes = {text: len(text.encode(errors="replace")) for _, text in requests}
    longest = max(most_ids(m.encode_span, sizes, sizes.__getitem__) for m in models)
    checked = parse(Settings, {**settings, "max_new_tokens": longest}, "loglikelihood")
    prompts = list(grouped)

    def start(index: int) -> Continuations:
        return Continuations(index, prompts[index], grouped[prompts[index]])

    def impossible(error: str | None) -> Likelihood:
        count = len(models)
        return Likelihood((-math.inf,) * count, (0,) * count, (False,) * count, error)

    events = Runner(models, checked, 2, prompts, start, read).events()

    def found() -> Iterator[tuple[int, Likelihood]]:
        for event in events:
            if isinstance(event, Finished):
                for text, indices in event.example.texts.items():
                    likelihood = event.example.found.get(text) or impossible(event.error)
                    yield from ((index, likelihood) for index in indices)

    return found()


def read(continuations: Continuations) -> Program[None]:
    """Read one text after the other in the trees of all models."""
    for text in continuations.texts:
        by_model = yield from gather(_read(own, text) for own in continuations.sequences)
        logprobs, tokens, greedy = zip(*by_model, strict=True)
        continuations.found[text] = Likelihood(logprobs, tokens, greedy)


def _read(sequence: TokenSequence, text: str) -> Program[tuple[float, int, bool]]:
    """Return a text's log-probability, its number of ids, and whether all of them are greedy."""
    model = sequence.model
    try:
        chain = sequence.root.chain(model.encode_span(text))
    except ContextFullError:
        raise ExampleError(
            f"the prompt and {text[:40]!r} after it are longer than the context of {model.name},"
            f" {sequence.engine.context} tokens; shorten the prompt"
        ) from None
    parents = [sequence.root, *chain[:-1]]
    # What follows the last id is not asked, unless that is how its own row comes back.
    unread = [node for node in chain[-1:] if node.logprob is None and parents[-1].released]
    yield from evaluated([*parents, *unread])
    steps = [_step(parent, node) for parent, node in zip(parents, chain, strict=False)]
    for node in chain:
        node.release()
    return math.fsum(logprob for logprob, _ in steps), len(chain), all(best for _, best in steps)


def _step(parent: Node, node: Node) -> tuple[float, bool]:
    assert parent.next is not None
    logprob = float(parent.next.logprobs[node.token]) if node.logprob is None else node.logprob
    return logprob, parent.next.greedy == node.token
