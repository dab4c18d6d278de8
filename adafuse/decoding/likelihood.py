"""How likely the models find given continuations: their token trees, read without rounds."""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from adafuse.decoding.run import Runner, most_ids
from adafuse.decoding.words import Settings
from adafuse.engine.node import Node, Program, TokenSequence, evaluated, gather
from adafuse.engine.scheduler import Finished
from adafuse.models.language_model import LanguageModel
from adafuse.options import parse
from adafuse.records.result import Likelihood, Prompt
from adafuse.tokenization.prompts import ids_if_any

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Continuations:
    """All texts that follow one prompt, each with the indices of its requests.

    `cuts` are how many of its first ids each model leaves out.
    """

    index: int
    prompt: Prompt
    cuts: Mapping[LanguageModel, int]
    texts: Mapping[str, Sequence[int]]
    sequences: list[TokenSequence] = field(default_factory=list)
    by_text: dict[str, Likelihood] = field(default_factory=dict)


def likelihoods(
    models: tuple[LanguageModel, ...],
    requests: Sequence[tuple[Prompt, str]],
    settings: Mapping[str, Any],
) -> Iterator[tuple[int, Likelihood]]:
    """Read all texts after their prompts; see `Ensemble.loglikelihoods`."""
    grouped: dict[tuple[Prompt, tuple[int, ...]], dict[str, list[int]]] = {}
    for index, (request, cuts) in enumerate(zip(requests, _cuts(models, requests), strict=True)):
        prompt, text = request
        grouped.setdefault((prompt, cuts), {}).setdefault(text, []).append(index)
    sizes = {text: len(text.encode(errors="replace")) for _, text in requests}
    longest = max(most_ids(m.encode_span, sizes, sizes.__getitem__) for m in models)
    checked = parse(Settings, {**settings, "max_new_tokens": longest}, "loglikelihood")
    groups = list(grouped)

    def start(index: int) -> Continuations:
        prompt, cuts = groups[index]
        cut = dict(zip(models, cuts, strict=True))
        return Continuations(index, prompt, cut, grouped[groups[index]])

    def ids(group: Continuations, model: LanguageModel) -> list[int]:
        whole = _prompt_ids(model, group.prompt)
        return whole[group.cuts[model] :]

    prompts = [prompt for prompt, _ in groups]
    events = Runner(models, checked, 2, prompts, start, read, ids).events()

    def results() -> Iterator[tuple[int, Likelihood]]:
        for event in events:
            if isinstance(event, Finished):
                for text, indices in event.example.texts.items():
                    likelihood = event.example.by_text.get(text) or impossible(models, event.error)
                    yield from ((index, likelihood) for index in indices)

    return results()


def impossible(models: Sequence[LanguageModel], error: str | None) -> Likelihood:
    count = len(models)
    return Likelihood((-math.inf,) * count, (0,) * count, (False,) * count, error)


def _cuts(
    models: Sequence[LanguageModel], requests: Sequence[tuple[Prompt, str]]
) -> list[tuple[int, ...]]:
    """Return for each request how many ids of its prompt each model leaves out, on the left.

    As in lm-evaluation-harness, these are the ones that do not fit. The last id of a text needs no
    position, as nobody asks what follows it.
    """
    columns = []
    for model in models:
        length = cache(partial(_length, partial(_prompt_ids, model)))
        column = []
        for prompt, text in requests:
            before, after = length(prompt), _length(partial(_text_ids, model, prompt), text)
            excess = before + after - model.readable
            column.append(max(0, excess) if excess < before else 0)
        columns.append(column)
        if cut := sum(map(bool, column)):
            logger.warning(
                "%d of %d texts do not fit into the context of %s, %d tokens, with their prompts,"
                " which are cut on the left",
                cut,
                len(requests),
                model.name,
                model.context,
            )
    return list(zip(*columns, strict=True))


def _length(encode: Callable[[Any], Sequence[int]], text: Prompt) -> int:
    return len(ids_if_any(encode, text))


def _prompt_ids(model: LanguageModel, prompt: Prompt) -> list[int]:
    return model.document_ids("")[0] if _empty(model, prompt) else model.prompt_ids(prompt)


def _text_ids(model: LanguageModel, prompt: Prompt, text: str) -> Sequence[int]:
    ids = model.document_ids(text)[1] if _empty(model, prompt) else model.encode_span(text)
    if text and not ids:  # nothing would be sure to follow
        raise ValueError(
            f"{text[:40]!r} has no token in the tokenizer of {model.name}; leave out that text, or"
            " use another model"
        )
    return ids


def _empty(model: LanguageModel, prompt: Prompt) -> bool:
    return prompt == "" and not model.chat


def read(continuations: Continuations) -> Program[None]:
    """Read one text after the other in the trees of all models."""
    sequences, by_text = continuations.sequences, continuations.by_text
    models = [sequence.model for sequence in sequences]
    for text in continuations.texts:
        try:
            ids = [_text_ids(model, continuations.prompt, text) for model in models]
            _check_room(sequences, ids, text)
            by_model = yield from gather(map(_read, sequences, ids))
        except ValueError as error:  # what a tokenizer refuses, or does not fit
            by_text[text] = impossible(models, str(error))
            continue
        logprobs, greedy = zip(*by_model, strict=True)
        by_text[text] = Likelihood(logprobs, tuple(map(len, ids)), greedy)
        if odd := [m.name for m, value in zip(models, logprobs, strict=True) if math.isnan(value)]:
            wrong = f"{text[:40]!r} has a log-likelihood that is not a number under"
            by_text[text] = impossible(models, f"{wrong} {' and '.join(odd)}")


def _check_room(
    sequences: Sequence[TokenSequence], ids: Sequence[Sequence[int]], text: str
) -> None:
    for sequence, own in zip(sequences, ids, strict=True):
        if len(sequence.ids) + len(own) > sequence.model.readable:
            raise ValueError(
                f"the prompt and {text[:40]!r} after it are longer than the context of"
                f" {sequence.model.name}, {sequence.engine.context} tokens; shorten the text"
            )


def _read(sequence: TokenSequence, ids: Sequence[int]) -> Program[tuple[float, bool]]:
    """Return a text's log-probability, and whether all of its ids are greedy."""
    context = sequence.engine.context
    chain = sequence.root.chain(ids[: context - len(sequence.ids)])
    parents = [sequence.root, *chain][: len(ids)]
    # What follows the last id is not asked, unless that is how its own log-probability comes.
    lazy = sequence.engine.lazy
    unread = [n for n in chain[-1:] if n.logprob is None and (lazy or parents[-1].released)]
    yield from evaluated([*parents, *unread])
    steps = [_step(*step) for step in zip(parents, ids, strict=True)]
    for node in chain:
        if node.depth + 1 < context:  # no child of the last one can be run for its row
            node.release()
    return math.fsum(logprob for logprob, _ in steps), all(best for _, best in steps)


def _step(parent: Node, token: int) -> tuple[float, bool]:
    assert parent.next is not None
    node = parent.children.get(token)
    known = None if node is None else node.logprob
    logprob = float(parent.next.logprobs[token]) if known is None else known
    return logprob, parent.next.greedy == token
