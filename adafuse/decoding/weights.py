"""Weights of an example from how likely each model finds its question (PackLLM, 2404.11531)."""

import math
from dataclasses import replace

from adafuse.decoding.fusion import softmax
from adafuse.decoding.round import Example
from adafuse.engine.node import Program, TokenSequence, gather
from adafuse.errors import ExampleError
from adafuse.records.result import Chat, Prompt
from adafuse.tokenization.prompts import common
from adafuse.tokenization.text import ModelTokenizer

PIECE = 32
"""So many ids of a prompt are read at a time: each needs a row of all log-probabilities."""

OTHER = "§"
"""A question that begins and ends with no token of another one."""


def weigh_by_prompt(example: Example) -> Program[None]:
    """Read the prompt, and weigh the models by how likely they find the question in it.

    w_k becomes w_k exp(-NLL_k / T): NLL_k is that of the question in nats, all of its tokens
    together, and T the mean number of tokens that the models need for it. With one tokenizer this
    is w_k over the perplexity (PackLLM-sim with temperature 1); with several, the same text counts.
    """
    active = [k for k, weight in enumerate(example.weights) if weight > 0]
    sequences = [example.sequences[k] for k in active]
    spans = [question_span(s.model, example.prompt, example.question) for s in sequences]
    nlls = yield from gather(_read(*pair) for pair in zip(sequences, spans, strict=True))
    tokens = math.fsum(last - first for first, last in spans) / len(spans)
    logs = [-math.inf] * len(example.weights)
    for k, nll in zip(active, nlls, strict=True):
        logs[k] = math.log(example.weights[k]) - (nll / tokens if tokens else 0.0)
    if any(map(math.isnan, nlls)) or max(logs) == -math.inf:
        odd = [s.model.name for s, nll in zip(sequences, nlls, strict=True) if not nll < math.inf]
        raise ExampleError(f"the question has no finite likelihood under {' and '.join(odd)}")
    example.weights = softmax(logs).tolist()
    example.weighed = True


def question_span(model: ModelTokenizer, prompt: Prompt, question: str) -> tuple[int, int]:
    """Return the first id of the question in those of the prompt, and the one after its last.

    They are the ids that change when another question stands there. Of a question that few-shot
    examples divide, they are those after the examples; of a prompt without the question, all
    after the first.
    """
    ids, other = model.prompt_ids(prompt), model.prompt_ids(_replaced(prompt, question))
    first = max(1, common(ids, other))
    last = len(ids) - common(ids[: first - 1 : -1], other[: first - 1 : -1])
    return (first, last) if last > first else (1, len(ids))


def _replaced(prompt: Prompt, question: str) -> Prompt:
    texts = [turn.content for turn in prompt.turns] if isinstance(prompt, Chat) else [prompt]
    places = [(n, around) for n, text in enumerate(texts) if (around := _around(text, question))]
    if not places:
        return OTHER
    active, around = places[-1]
    other = OTHER.join(around)
    if isinstance(prompt, str):
        return other
    turns = list(prompt.turns)
    turns[active] = replace(turns[active], content=other)
    return replace(prompt, turns=tuple(turns))


def _around(text: str, question: str) -> tuple[str, str] | None:
    """Return what stands before and after the question in a text; None if it is not there.

    Few-shot examples may divide it, after an instruction: what follows them is the question then.
    """
    if not question:
        return None
    before, found, after = text.rpartition(question)
    if found:
        return before, after
    tail = common(text[::-1], question[::-1])
    divided = common(text, question) + tail >= len(question) and len(text) > len(question)
    return (text[: len(text) - tail], "") if divided else None


def _read(sequence: TokenSequence, span: tuple[int, int]) -> Program[float]:
    """Read the prompt, and return the NLL in nats of its ids from span[0] up to span[1]."""
    first, last = span
    rest, terms = sequence.rewind(first), [0.0]
    for start in range(0, len(rest), PIECE):
        chain = sequence.root.chain(rest[start : start + PIECE])
        yield [node for node in (sequence.root, *chain) if node.next is None]
        terms += [-_logprob(node.logprob) for node in chain if node.depth < last]
        sequence.engine.commit(chain[-1])
    sequence.likeliest.clear()
    return math.fsum(terms)


def _logprob(value: float | None) -> float:
    assert value is not None, "a node is evaluated after its parent"
    return value
