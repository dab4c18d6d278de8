"""The candidates of a round: the union of what the models propose, scored by all of them."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from adafuse.decoding.fusion import SpanScore
from adafuse.decoding.words import Span
from adafuse.engine.node import ContextFullError, Node, TokenSequence
from adafuse.engine.program import Program, evaluated


@dataclass(slots=True)
class Entry:
    """One candidate: its text, whether it ends, and the last node it has in each model's tree.

    `proposers` are the numbers of the models that wrote it; `nodes` starts with theirs, as far as
    they keep the ids that they wrote.
    """

    text: str
    ends: bool
    proposers: list[int] = field(default_factory=list)
    nodes: dict[int, Node] = field(default_factory=dict)


def pool(proposals: Iterable[Iterable[Span]]) -> list[Entry]:
    """Unite the proposals of all models, keyed by (text, ends), in order of model, then branch."""
    entries: dict[tuple[str, bool], Entry] = {}
    for number, spans in enumerate(proposals):
        for span in spans:
            entry = entries.setdefault((span.text, span.ends), Entry(span.text, span.ends))
            if number not in entry.nodes:
                entry.proposers.append(number)
                entry.nodes[number] = span.node
    return list(entries.values())


def reading(sequence: TokenSequence, texts: Iterable[str]) -> list[Node]:
    """Return the nodes that let a model read `texts` under its root, the root among them.

    A text that its tokenizer or context has no room for is left out: whether that is an error is
    known when the text turns out to be a candidate that the model did not write itself.
    """
    nodes = [sequence.root]
    for text in texts:
        with suppress(ContextFullError, ValueError):
            nodes += sequence.root.chain(sequence.model.encode_span(text))
    return list(dict.fromkeys(nodes))


def grow_foreign(entries: Sequence[Entry], sequences: Sequence[TokenSequence]) -> Program[None]:
    """Grow every candidate in the tree of every model that has no node for it, in one request.

    Where a model is asked anyway, tips of its own candidates that were never run go along: if one
    of them is committed, the next round's first distribution is there already.
    """
    request: list[Node] = []
    for number, sequence in enumerate(sequences):
        foreign = [entry for entry in entries if number not in entry.nodes]
        if foreign:
            own = (entry.nodes[number] for entry in entries if number in entry.nodes)
            request.extend((sequence.root, *own))
        for entry in foreign:
            chain = sequence.root.chain(sequence.model.encode_span(entry.text))
            entry.nodes[number] = chain[-1] if chain else sequence.root
            request.extend(chain)
    yield from evaluated(dict.fromkeys(request))


def span_score(entry: Entry, number: int) -> SpanScore:
    """Return NLL_k(s) (eq. 4) over T ids, END counted as one; infinite if T is 0."""
    node = entry.nodes[number]
    logprobs = [step.logprob for step in node.path()]
    if entry.ends:
        assert node.next is not None
        logprobs.append(node.next.log_end)
    known = [value for value in logprobs if value is not None]
    assert len(known) == len(logprobs), "a candidate was scored before it was grown"
    if not known:
        return SpanScore(math.inf, 0)
    return SpanScore(-math.fsum(known) / len(known), len(known))
