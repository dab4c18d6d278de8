"""What each model writes on its own: the candidates of methods that choose between answers."""

import math
from collections.abc import Sequence

from adafuse.decoding.candidates import Candidate
from adafuse.decoding.round import Example
from adafuse.decoding.words import WordRules, add_word, unwritten
from adafuse.engine.node import ContextFullError, Node, Program, TokenSequence, gather
from adafuse.errors import ExampleError
from adafuse.records import Answer, StopReason

WrittenAnswer = tuple[Candidate, StopReason]
"""A model's greedy answer as a branch from its root, not cut, and why it ends there."""


def own_answers(example: Example) -> Program[list[Answer]]:
    """Return `example.answers`, or else have every model write its greedy answer.

    Nothing is committed. Text and stop reason are those of the method `single`.
    """
    if example.answers is not None:
        assert len(example.answers) == len(example.weights), "one answer per model"
        return list(example.answers)
    written = yield from greedy_answers(example)
    return [Answer(example.stops.cut(candidate.text), reason) for candidate, reason in written]


def without_errors(answers: Sequence[Answer]) -> list[tuple[int, Answer]]:
    """Return the answers that are not errors, each with the number of its model.

    Raises:
        ExampleError: all of them are errors.
    """
    kept = [numbered for numbered in enumerate(answers) if numbered[1].stop_reason != "error"]
    if not kept:
        raise ExampleError("the own answers of all models are errors")
    return kept


def greedy_answers(example: Example) -> Program[list[WrittenAnswer]]:
    """Have every model write its own greedy answer, side by side, from its root."""
    return gather(_write(example, sequence) for sequence in example.sequences)


def _write(example: Example, sequence: TokenSequence) -> Program[WrittenAnswer]:
    limits = example.limits
    span = unwritten(sequence)
    reason: StopReason | None = None
    try:
        while reason is None:
            left = limits.max_new_tokens - (span.node.depth - sequence.root.depth)
            longer = yield from add_word(span, WordRules(example.stops, hard_limit=left))
            added = [node for node in longer.node.path() if node.depth >= span.node.depth]
            if not _is_finite(span, longer, added):
                return span, "error"
            for node in added[:-1]:
                node.release()  # a long answer would hold a row of log-probabilities per token
            span = longer
            tokens = span.node.depth - sequence.root.depth
            reason = limits.stop_reason(
                span.text, ended=span.ends, tokens=tokens, rounds=span.words
            )
    except ContextFullError:
        reason = "length"
    return span, reason


def _is_finite(span: Candidate, longer: Candidate, added: Sequence[Node]) -> bool:
    """Whether the model gives what it added to `span` a finite log-probability."""
    logprobs = [node.logprob for node in added if node is not span.node]
    if longer.ends:
        assert longer.node.next is not None
        logprobs.append(longer.node.next.log_end)
    return all(value is not None and math.isfinite(value) for value in logprobs)
