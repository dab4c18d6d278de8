"""What each model writes on its own: the candidates of methods that choose between answers."""

import math
from collections.abc import Sequence
from dataclasses import replace

from adafuse.decoding.candidates import Span
from adafuse.decoding.round import Example
from adafuse.decoding.words import WordRules, add_word, empty_span
from adafuse.engine.node import ContextFullError, Program, TokenSequence, gather
from adafuse.errors import ExampleError
from adafuse.records.result import Answer, StopReason
from adafuse.tokenization.text import whole_characters

WrittenAnswer = tuple[Span, StopReason]
"""A model's greedy answer as a branch from its root, not cut, and why it ends there."""


def own_answers(example: Example) -> Program[list[Answer]]:
    """Return `example.answers`, or else what `single` would give; nothing is committed."""
    if example.answers is not None:
        assert len(example.answers) == len(example.weights), "one answer per model"
        answers = list(example.answers)
    else:
        written = yield from greedy_answers(example)
        answers = [Answer(example.stops.cut(span.text), reason) for span, reason in written]
    if (marks := example.thoughts) is None:
        return answers
    return [
        answer
        if answer.thoughts is not None
        else replace(answer, thoughts=marks.length(answer.text) or None)
        for answer in answers
    ]


def comparable(answers: Sequence[Answer]) -> list[tuple[int, Answer]]:
    """Return the answers that are not errors, at least one, each with the number of its model.

    Texts that are only thoughts are left out, unless there are no others.
    """
    kept = [(k, answer) for k, answer in enumerate(answers) if answer.stop_reason != "error"]
    if not kept:
        raise ExampleError("the own answers of all models are errors")
    return [(k, answer) for k, answer in kept if answer.answer or not answer.thoughts] or kept


def greedy_answers(example: Example) -> Program[list[WrittenAnswer]]:
    """Have every model write its own greedy answer, side by side, from its root."""
    return gather(_write(example, sequence) for sequence in example.sequences)


def _write(example: Example, sequence: TokenSequence) -> Program[WrittenAnswer]:
    limits, tokens = example.limits, 0
    span = empty_span(sequence)
    reason: StopReason | None = None
    try:
        while reason is None:
            rules = WordRules(example.stops, hard_limit=limits.max_new_tokens - tokens)
            longer = yield from add_word(span, rules)
            path = longer.node.path()
            logprobs = [node.logprob for node in path[tokens:]]
            if longer.ends:
                assert longer.node.next is not None
                logprobs.append(longer.node.next.log_end)
            if not all(value is not None and math.isfinite(value) for value in logprobs):
                return span, "error"
            for node in path[max(0, tokens - 1) : -1]:
                node.release()  # a long answer would hold a row of log-probabilities per token
            span, tokens = longer, len(path)
            text, ended, words = span.text, span.ends, span.words
            stopped = example.stops.within(text)
            reason = limits.stop_reason(ended=ended, stopped=stopped, tokens=tokens, rounds=words)
    except ContextFullError:
        reason = "length"
    if reason in ("length", "eos"):
        ids = [*sequence.ids, *(node.token for node in span.node.path())]
        span.text = whole_characters(sequence.model, span.text, ids)
    return span, reason
