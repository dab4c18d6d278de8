"""What each model writes on its own: the candidates of methods that choose between answers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adafuse.decoding.candidates import Entry
from adafuse.decoding.example import Example
from adafuse.decoding.words import Span, WordRules, add_word
from adafuse.engine.node import ContextFullError, Node, TokenSequence
from adafuse.engine.program import Program, gather
from adafuse.errors import ExampleError
from adafuse.records import Answer, StopReason


@dataclass(frozen=True, slots=True)
class Solo:
    """A model's greedy answer as a branch under its root, not cut, and why it ends there."""

    span: Span
    reason: StopReason


def own_answers(example: Example) -> Program[list[Answer]]:
    """Return `example.answers`, or else have every model write its greedy answer.

    Nothing is committed. Text and stop reason are those of the method `single`.
    """
    if example.answers is not None:
        assert len(example.answers) == len(example.weights), "one answer per model"
        return list(example.answers)
    solos = yield from written_alone(example)
    return [Answer(example.stops.cut(solo.span.text), solo.reason) for solo in solos]


def without_errors(answers: Sequence[Answer]) -> list[tuple[int, Answer]]:
    """Return the answers that are none, each with the number of its model.

    Raises:
        ExampleError: all of them are errors.
    """
    kept = [each for each in enumerate(answers) if each[1].stop_reason != "error"]
    if not kept:
        raise ExampleError("the own answers of all models are errors")
    return kept


def answer_entries(answers: Sequence[Answer]) -> list[Entry]:
    """Pool answers as candidates, without those that are errors; equal ones are one entry.

    Every model, the writer too, has yet to encode the text (`grow_foreign`): the cut text is what
    is scored, wherever the answer comes from.

    Raises:
        ExampleError: all of them are errors.
    """
    entries: dict[tuple[str, bool], Entry] = {}
    for number, answer in without_errors(answers):
        key = (answer.text, answer.stop_reason == "eos")
        entries.setdefault(key, Entry(*key)).proposers.append(number)
    return list(entries.values())


def fits(entry: Entry, sequences: Sequence[TokenSequence]) -> bool:
    """Whether every model that still has to read the candidate has a context for it."""
    return all(
        sequence.root.depth + len(sequence.model.encode_span(entry.text)) < sequence.engine.context
        for number, sequence in enumerate(sequences)
        if number not in entry.nodes
    )


def written_alone(example: Example) -> Program[list[Solo]]:
    """Have every model write its own greedy answer, side by side, from its root."""
    return gather(_write(example, sequence) for sequence in example.sequences)


def _write(example: Example, sequence: TokenSequence) -> Program[Solo]:
    limits = example.limits
    span = Span(sequence.root)
    reason: StopReason | None = None
    try:
        while reason is None:
            left = limits.max_new_tokens - (span.node.depth - sequence.root.depth)
            longer = yield from add_word(span, WordRules(example.stops, hard_limit=left))
            if not _is_finite(span, longer):
                return Solo(span, "error")
            for node in _written(span, longer)[:-1]:
                node.release()  # a long answer would hold a row of log-probabilities per token
            span = longer
            tokens = span.node.depth - sequence.root.depth
            reason = limits.stop_reason(
                span.text, ended=span.ends, tokens=tokens, rounds=span.words
            )
    except ContextFullError:
        reason = "length"
    return Solo(span, reason)


def _is_finite(span: Span, longer: Span) -> bool:
    """Whether the model gives what it added to `span` a finite log-probability."""
    added = [node.logprob for node in _written(span, longer) if node is not span.node]
    if longer.ends:
        assert longer.node.next is not None
        added.append(longer.node.next.log_end)
    return all(value is not None and math.isfinite(value) for value in added)


def _written(span: Span, longer: Span) -> list[Node]:
    """Return the nodes from the end of `span` on, without the root."""
    return [node for node in longer.node.path() if node.depth >= span.node.depth]
