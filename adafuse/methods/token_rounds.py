"""The loop of methods that fuse next-token distributions: one token, or byte, per round."""

import codecs
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from adafuse.engine.node import ContextFullError, NextToken
from adafuse.engine.program import Program, gather
from adafuse.errors import ExampleError
from adafuse.methods.example import Example
from adafuse.methods.strand import Strand
from adafuse.records import Candidate, Round

TRACED = 5
"""A trace keeps this many of the best entries of each round."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the vocabularies' union: some bytes, or END (`ends`, no bytes).

    `nll[k]` is -log p_k(entry) under model k as the method normalises it, `fused` the negative
    logarithm of what the method maximises; `proposers` are the models among whose likeliest tokens
    it is. A model that was not asked has the NLL nan.
    """

    surface: bytes
    ends: bool
    proposers: tuple[int, ...]
    nll: tuple[float, ...]
    fused: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The entries of a round, the chosen one first, and each model's margin where it was read."""

    entries: Sequence[Entry]
    margins: tuple[tuple[float, ...], ...]


def entry(key: bytes, proposers: Iterable[int], p: Iterable[float], fused: float) -> Entry:
    """Return an entry by its key (nothing for END), from probabilities."""
    nll = tuple(negative_log(each) for each in p)
    return Entry(key, not key, tuple(proposers), nll, negative_log(fused))


Choose = Callable[[Sequence[Strand]], Program[Choice]]


def fuse_tokens(example: Example, choose: Choose, *, keeps_own: bool = True) -> Program[None]:
    """Choose an entry and write its bytes in every model until the example stops.

    A character whose bytes come one by one is added to the text when it is whole.

    Args:
        example: what is decoded.
        choose: returns the entries of a round.
        keeps_own: models keep the ids that they would have written themselves; see `Strand`.
    """
    strands = [Strand(sequence, keeps_own=keeps_own) for sequence in example.sequences]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        while example.reason is None:
            choice = yield from choose(strands)
            if not choice.entries or not math.isfinite(choice.entries[0].fused):
                raise ExampleError(_no_finite(strands))
            chosen = choice.entries[0]
            assert chosen.ends or chosen.surface, "an entry without bytes would be chosen forever"
            if not chosen.ends:
                for strand in strands:
                    strand.extend(chosen.surface)
            text = decoder.decode(chosen.surface, final=chosen.ends)
            example.rounds.append(_round(choice, _begun_words(example.text, text)))
            longest = max(strand.generated for strand in strands)
            example.append(text, chosen.ends, longest)
    except ContextFullError:
        example.reason = "length"
    for strand in strands:
        strand.finish()


def distributions(strands: Iterable[Strand]) -> Program[list[NextToken]]:
    """Return each model's distribution behind the text; the models are asked side by side."""
    nodes = yield from gather(strand.known() for strand in strands)
    known = [node.next for node in nodes if node.next is not None]
    assert len(known) == len(nodes)
    return known


def _no_finite(strands: Iterable[Strand]) -> str:
    ends = [(strand.sequence.model.name, strand.node.next) for strand in strands]
    odd = [name for name, after in ends if after and not math.isfinite(after.logprobs[0])]
    return f"no next token has a probability under {' and '.join(odd) or 'all models together'}"


def _round(choice: Choice, words: int) -> Round:
    candidates = [
        Candidate(e.surface.decode(errors="replace"), e.ends, e.proposers, e.nll, e.fused)
        for e in choice.entries[:TRACED]
    ]
    return Round(tuple(candidates), 0, words, choice.margins)


def negative_log(p: float) -> float:
    """Return -log p, infinite for 0."""
    return math.inf if p == 0 else -math.log(p)


def _begun_words(before: str, text: str) -> int:
    """Count the words that begin in `text` when it follows `before`."""
    inside = bool(before) and not before[-1].isspace()
    continued = inside and bool(text) and not text[0].isspace()
    return len(text.split()) - continued
